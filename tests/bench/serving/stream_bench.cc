// What streams cost and what they do to others. Not a Google Benchmark program: it prints its own
// table. Rows: the first answer of a stream against a unary call; texts per second of one stream
// against eight unary calls in flight; and, beside each kind of bad stream, small unary calls.
//
//   stream_bench --server=HOST:PORT --pid=PID --texts=FILE (one text per line)
//
// The bad streams are over sooner with castor-server --transfer-timeout 2s.

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "castor/v1/attention.grpc.pb.h"
#include "client/client.h"
#include "client/tensor.h"
#include "tests/bench/command_line.h"
#include "tests/bench/median.h"

namespace castor::bench {
namespace {

using std::chrono::steady_clock;

constexpr int kTexts = 10'000;
constexpr int kFirstAnswers = 1'000;
constexpr std::chrono::seconds kBeside{5};

double MicrosecondsOf(const std::function<void()>& work) {
  const auto begin = steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count();
}

v1::AttendRequest AttendOf(int64_t tokens) {
  v1::AttendRequest request;
  const std::vector<float> values(static_cast<size_t>(tokens) * 64, 0.5F);
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    *tensor = client::MakeTensor(values, {tokens, 1, 64});
  }
  // Many sequences of one token: large, and little to compute.
  for (int64_t i = 0; i < tokens; ++i) request.add_query_lengths(1);
  return request;
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
}

class AttendStream {
 public:
  explicit AttendStream(v1::AttentionService::Stub& stub) : stream_(stub.AttendStream(&context_)) {}
  bool Write(const v1::AttendRequest& request) { return stream_->Write(request); }
  bool Read() { return stream_->Read(&response_); }
  grpc::Status Finish() {
    while (Read()) {
    }
    return stream_->Finish();
  }
  void WritesDone() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> stream_;
  v1::AttendResponse response_;
};

void Call(v1::AttentionService::Stub& stub, const v1::AttendRequest& request) {
  grpc::ClientContext context;
  v1::AttendResponse response;
  const grpc::Status status = stub.Attend(&context, request, &response);
  if (!status.ok()) Die("a small call was refused: " + status.error_message());
}

void FirstAnswers(const std::string& server) {
  const auto stub = v1::AttentionService::NewStub(NewChannel(server));
  const v1::AttendRequest request = AttendOf(1);
  std::vector<double> unary, streamed;
  for (int i = 0; i < kFirstAnswers; ++i) {
    unary.push_back(MicrosecondsOf([&] { Call(*stub, request); }));
    std::unique_ptr<AttendStream> stream;
    streamed.push_back(MicrosecondsOf([&] {
      stream = std::make_unique<AttendStream>(*stub);
      if (!stream->Write(request) || !stream->Read()) Die("a stream did not answer");
    }));
    stream->WritesDone();
    stream->Finish();
  }
  std::printf("first answer: unary %.0f us, stream %.0f us (medians of %d)\n", Median(unary),
              Median(streamed), kFirstAnswers);
}

void Texts(const std::string& server, const std::string& path) {
  const std::vector<std::string> texts = ReadTexts(path);
  client::Client client({.target = server});
  const auto request_of = [&](int i) {
    v1::EncodeRequest request;
    request.mutable_texts()->add_texts(texts[static_cast<size_t>(i) % texts.size()]);
    return request;
  };
  const auto report = [](const char* what, double us, int64_t tokens) {
    std::printf("%s: %d texts, %lld tokens, %.0f tokens/s\n", what, kTexts,
                static_cast<long long>(tokens), static_cast<double>(tokens) / us * 1e6);
  };
  const auto unary = [&] {
    std::atomic<int> next = 0;
    std::atomic<int64_t> tokens = 0;
    const double us = MicrosecondsOf([&] {
      std::vector<std::thread> callers;
      for (int c = 0; c < 8; ++c) {
        callers.emplace_back([&] {
          for (int i; (i = next++) < kTexts;) {
            const auto response = client.Encode(request_of(i));
            if (!response.ok()) Die(response.error().ToString());
            tokens += response->token_counts(0);
          }
        });
      }
      for (std::thread& caller : callers) caller.join();
    });
    report("8 unary calls in flight", us, tokens);
  };
  const auto streamed = [&](size_t window) {
    int made = 0;
    int64_t tokens = 0;
    const double us = MicrosecondsOf([&] {
      const auto stream = client.EncodeStream(
          [&](v1::EncodeRequest* request) {
            if (made == kTexts) return false;
            *request = request_of(made++);
            return true;
          },
          {.window = window});
      while (const auto answer = stream->Next()) {
        if (!answer->ok()) Die(answer->error().ToString());
        tokens += (*answer)->token_counts(0);
      }
    });
    report(("one stream, a window of " + std::to_string(window)).c_str(), us, tokens);
  };
  unary();
  streamed(8);
  streamed(client::StreamOptions().window);
  unary();
}

int64_t ResidentMiB(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * 4096 / (1 << 20);
}

// Small unary calls, one every few milliseconds, while `streams` run, each on a thread.
void Beside(const std::string& server, const std::string& pid, const char* what, int streams,
            const std::function<void(AttendStream&, const std::atomic<bool>&)>& run) {
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int s = 0; s < streams; ++s) {
    if (s % 100 == 0) channels.push_back(NewChannel(server));
    threads.emplace_back([&, channel = channels.back()] {
      const auto stub = v1::AttentionService::NewStub(channel);
      AttendStream stream(*stub);
      run(stream, over);
      stream.Cancel();
      stream.Finish();
    });
  }
  const auto stub = v1::AttentionService::NewStub(NewChannel(server));
  const v1::AttendRequest small = AttendOf(1);
  std::vector<double> times;
  int64_t resident = 0;
  for (const auto end = steady_clock::now() + kBeside; steady_clock::now() < end;) {
    times.push_back(MicrosecondsOf([&] { Call(*stub, small); }));
    resident = std::max(resident, ResidentMiB(pid));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  std::sort(times.begin(), times.end());
  std::printf("%s: small calls %.2f ms (median), %.2f ms (p99); at most %lld MiB resident\n", what,
              Median(times) / 1e3, times[times.size() * 99 / 100] / 1e3,
              static_cast<long long>(resident));
}

void BadStreams(const std::string& server, const std::string& pid) {
  const auto wait = [](const std::atomic<bool>& over) {
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  const v1::AttendRequest small = AttendOf(1), large = AttendOf(1'300), largest = AttendOf(20'000);
  Beside(server, pid, "nothing", 0, [](AttendStream&, const auto&) {});
  Beside(server, pid, "16 streams that write 1 MB messages and read nothing", 16,
         [&](AttendStream& stream, const auto& over) {
           while (!over && stream.Write(large)) {
           }
         });
  Beside(server, pid, "200 streams that send nothing", 200,
         [&](AttendStream&, const auto& over) { wait(over); });
  Beside(server, pid, "1,000 streams with one message each", 1'000,
         [&](AttendStream& stream, const auto& over) {
           if (stream.Write(small)) stream.Read();
           wait(over);
         });
  Beside(server, pid, "16 streams with 15 MB messages, one after another", 16,
         [&](AttendStream& stream, const auto& over) {
           while (!over && stream.Write(largest) && stream.Read()) {
           }
         });
  Beside(server, pid, "8 streams of nothing but errors, as fast as they can", 8,
         [&](AttendStream& stream, const auto& over) {
           while (!over && stream.Write({}) && stream.Read()) {
           }
         });
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) {
  using namespace castor::bench;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string server = TakeFlag("server", &argc, argv);
  const std::string pid = TakeFlag("pid", &argc, argv);
  const std::string texts = TakeFlag("texts", &argc, argv, "none");
  FirstAnswers(server);
  if (texts != "none") Texts(server, texts);
  BadStreams(server, pid);
}
