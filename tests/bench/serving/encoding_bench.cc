// Sentences per second through a castor-server on this machine: eight concurrent requests of eight
// texts each, as concurrent clients send them, or --clients=N of --texts-per-request=N. Also the
// median time of a call, and of its part without the device's computing: sockets, tokenizing and
// waiting.
//
// --fresh=SHARE of the requests, 0 to 1 (default 0), have texts that were never sent before; the
// others are the same in every iteration. It shows what --answer-cache saves and costs.
//
// Needs --server=HOST:PORT and --texts=FILE (one text per line), and takes Google Benchmark's own
// flags. tests/bench/run.sh starts the server and compares with sentence-transformers on the same
// texts.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "castor/v1/encoder.pb.h"
#include "server/lifecycle/environment.h"
#include "tests/bench/command_line.h"
#include "tests/bench/serving/pump.h"
#include "tests/bench/serving/wire_client.h"

namespace castor::bench {
namespace {

using std::chrono::steady_clock;

constexpr char kEncode[] = "/castor.v1.EncoderService/Encode";

std::vector<v1::EncodeRequest> ReadRequests(const std::string& path, size_t texts_per_request) {
  const std::vector<std::string> texts = ReadTexts(path);
  std::vector<v1::EncodeRequest> requests;
  for (size_t begin = 0; begin < texts.size(); begin += texts_per_request) {
    v1::EncodeRequest& request = requests.emplace_back();
    const size_t end = std::min(begin + texts_per_request, texts.size());
    for (size_t i = begin; i < end; ++i) request.mutable_texts()->add_texts(texts[i]);
  }
  return requests;
}

// The bytes of the `n`-th request that is sent; of a fresh one, a text begins with a number.
grpc::ByteBuffer BytesOf(v1::EncodeRequest request, double fresh, int64_t n) {
  const auto count = [&](int64_t sent) { return std::floor(fresh * static_cast<double>(sent)); };
  if (count(n + 1) > count(n)) {
    // Differs between runs of this program too.
    static const int64_t start = steady_clock::now().time_since_epoch().count() % 1'000'000'000;
    std::string* const text = request.mutable_texts()->mutable_texts(0);
    *text = std::to_string(start) + " " + std::to_string(n) + " " + *text;
  }
  const grpc::Slice slice(request.SerializeAsString());
  return {&slice, 1};
}

// The times of calls, in milliseconds. Any thread.
class CallTimes {
 public:
  void Note(double whole_ms, double compute_ms) {
    const std::lock_guard lock(mu_);
    whole_.push_back(whole_ms);
    beside_.push_back(whole_ms - compute_ms);
  }

  void Report(benchmark::State& state) const {
    state.counters["p50_ms"] = Median(whole_);
    state.counters["p50_beside_compute_ms"] = Median(beside_);
  }

 private:
  std::mutex mu_;
  std::vector<double> whole_;
  std::vector<double> beside_;
};

void Encode(benchmark::State& state, WireClient& client, int clients,
            const std::vector<v1::EncodeRequest>& requests, double fresh) {
  std::atomic<int64_t> tokens = 0;
  std::atomic<int64_t> padded = 0;
  std::atomic<int64_t> cached = 0;
  static int64_t sent = 0;
  CallTimes times;
  for (auto _ : state) {
    Pump(clients).Run(static_cast<int>(requests.size()), [&](int i, std::function<void()> done) {
      const grpc::ByteBuffer message = BytesOf(requests[i], fresh, sent++);
      const auto start = steady_clock::now();
      client.Call(kEncode, message, [&, start, done = std::move(done)](grpc::ByteBuffer bytes) {
        const std::chrono::duration<double, std::milli> whole = steady_clock::now() - start;
        const auto response = Parse<v1::EncodeResponse>(bytes);
        for (int64_t count : response.token_counts()) tokens += count;
        padded += response.batch().padded_tokens();
        cached += response.batch().cached();
        times.Note(whole.count(), response.timing().compute_us() * 1e-3);
        done();
      });
    });
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
  state.counters["padded_tokens"] = static_cast<double>(padded);
  state.counters["cached"] = static_cast<double>(cached);
  times.Report(state);
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) {
  using castor::bench::TakeFlag;
  castor::bench::WireClient client(TakeFlag("server", &argc, argv));
  const int clients = std::stoi(TakeFlag("clients", &argc, argv, "8"));
  const auto requests = castor::bench::ReadRequests(
      TakeFlag("texts", &argc, argv), std::stoul(TakeFlag("texts-per-request", &argc, argv, "8")));
  const double fresh = std::stod(TakeFlag("fresh", &argc, argv, "0"));
  castor::server::KeepFreedMemory();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RegisterBenchmark("BM_EncodeServer",
                               [&](benchmark::State& state) {
                                 castor::bench::Encode(state, client, clients, requests, fresh);
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
