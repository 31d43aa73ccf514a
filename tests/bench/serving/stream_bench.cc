// The cost of streams. Not a Google Benchmark program: it prints its own table. Rows: the first
// answer of a stream against a unary call, and texts per second of one stream against eight unary
// calls in flight.
//
//   stream_bench --server=HOST:PORT --texts=FILE (one text per line)

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <chrono>
#include <cstdio>
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

double MicrosecondsOf(const std::function<void()>& work) {
  const auto begin = steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count();
}

v1::AttendRequest SmallRequest() {
  v1::AttendRequest request;
  const std::vector<float> values(64, 0.5F);
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    *tensor = client::MakeTensor(values, {1, 1, 64});
  }
  request.add_query_lengths(1);
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
  const v1::AttendRequest request = SmallRequest();
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

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) {
  using namespace castor::bench;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string server = TakeFlag("server", &argc, argv);
  const std::string texts = TakeFlag("texts", &argc, argv);
  FirstAnswers(server);
  Texts(server, texts);
}
