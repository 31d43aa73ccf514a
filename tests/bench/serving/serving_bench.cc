// The server's overhead over the engine: the same attention requests through the bare engine in
// this process, and over gRPC to a castor-server on this machine, with the tensors in the messages
// or in shared memory.
//
// Needs --server=HOST:PORT of a server started with --shared-memory, and takes Google Benchmark's
// own flags. Saturation keeps 32 requests in flight and counts tokens per second. Latency sends one
// small request at a time and reports medians, and the server's own timing of the stages.
// tests/bench/run.sh starts the server and prints the ratios.

#include <benchmark/benchmark.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "client/client.h"
#include "client/shared_memory.h"
#include "engine/attention/variants.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "server/lifecycle/environment.h"
#include "tests/bench/command_line.h"
#include "tests/bench/serving/pump.h"
#include "tests/bench/serving/wire_client.h"
#include "tests/bench/serving/workload.h"

namespace castor::bench {
namespace {

constexpr int kWindow = 32;
constexpr int kProblems = 64;   // distinct ones
constexpr int kRequests = 256;  // per iteration: enough to make start and end negligible
constexpr int64_t kHeads = 8;
constexpr int64_t kHeadDim = 64;

// "One small attend": 24 KiB in, 8 KiB out.
constexpr int64_t kSmallTokens = 16;
constexpr int64_t kSmallHeads = 4;
constexpr int64_t kSmallHeadDim = 32;

constexpr char kAttend[] = "/castor.v1.AttentionService/Attend";

std::string server_address;

Engine& BareEngine() {
  static const std::unique_ptr<Engine> engine = [] {
    EngineOptions options;
    options.device = "cpu";
    auto created = CreateEngine(options);
    if (!created.ok()) Die(std::string(created.status().message()));
    return *std::move(created);
  }();
  return *engine;
}

v1::AttendRequest Message(const AttentionProblem& problem) {
  v1::AttendRequest request;
  for (const auto& [tensor, bytes] : {std::pair{request.mutable_query(), &problem.query},
                                      std::pair{request.mutable_key(), &problem.key},
                                      std::pair{request.mutable_value(), &problem.value}}) {
    tensor->set_dtype(problem.dtype == DType::kFloat32 ? v1::FLOAT32 : v1::BFLOAT16);
    for (int64_t dimension : {problem.tokens, problem.heads, problem.head_dim}) {
      tensor->add_shape(dimension);
    }
    tensor->set_raw(bytes->data(), bytes->size());
  }
  return request;
}

// A request's bytes on the wire, built once: sending them again copies nothing.
grpc::ByteBuffer WireBytes(const AttentionProblem& problem) {
  const grpc::Slice slice(Message(problem).SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

WireClient& Server() {
  static WireClient client(server_address);
  return client;
}

struct Mix {
  std::vector<AttentionProblem> problems;
  std::vector<grpc::ByteBuffer> wire;
  int64_t tokens = 0;

  explicit Mix(DType dtype) {
    const std::vector<int64_t> lengths = MixedLengths(kProblems, 128, 2048, 1);
    problems.reserve(lengths.size());
    for (size_t i = 0; i < lengths.size(); ++i) {
      problems.emplace_back(lengths[i], kHeads, kHeadDim, dtype, i);
      wire.push_back(WireBytes(problems.back()));
      tokens += lengths[i];
    }
  }
};

const Mix& MixOf(DType dtype) {
  static const Mix float32(DType::kFloat32), bfloat16(DType::kBFloat16);
  return dtype == DType::kFloat32 ? float32 : bfloat16;
}

// The tensors of a mix in shared memory, and space there for the output of each request in flight.
class SharedMix {
 public:
  explicit SharedMix(const Mix& mix) : client_({.target = server_address}), memory_(Create(mix)) {
    const auto registered = client_.RegisterSharedMemory(memory_);
    if (!registered.ok()) Die(registered.error().ToString());
    size_t offset = 0;
    for (const AttentionProblem& problem : mix.problems) {
      v1::AttendRequest& request = requests_.emplace_back(Message(problem));
      for (v1::Tensor* tensor :
           {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
        const std::string& raw = tensor->raw();
        const size_t size = raw.size();
        std::memcpy(memory_.data() + offset, raw.data(), size);
        *tensor->mutable_shared_memory() = memory_.Ref(offset, size);
        offset += size;
      }
    }
    for (int slot = 0; slot < kWindow; ++slot, offset += LargestOutput(mix)) {
      free_slots_.push_back(offset);
    }
  }
  ~SharedMix() { (void)client_.UnregisterSharedMemory(memory_.name()); }

  // Reserves space for an output, until GiveBack.
  size_t TakeSlot() {
    MutexLock lock(mu_);
    const size_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  void GiveBack(size_t slot) {
    MutexLock lock(mu_);
    free_slots_.push_back(slot);
  }

  // Problem i, with `slot` for its output. A few hundred bytes, built for each call.
  grpc::ByteBuffer WireBytes(int i, size_t slot) const {
    v1::AttendRequest request = requests_[i];
    *request.mutable_output() =
        memory_.Ref(slot, static_cast<size_t>(request.value().shared_memory().size()));
    const grpc::Slice slice(request.SerializeAsString());
    return grpc::ByteBuffer(&slice, 1);
  }

 private:
  static size_t LargestOutput(const Mix& mix) {
    size_t largest = 0;
    for (const AttentionProblem& problem : mix.problems) {
      largest = std::max(largest, problem.value.size());
    }
    return largest;
  }

  static client::SharedMemory Create(const Mix& mix) {
    size_t size = kWindow * LargestOutput(mix);
    for (const AttentionProblem& problem : mix.problems) size += 3 * problem.query.size();
    auto memory = client::SharedMemory::Create(size);
    if (!memory.ok()) Die(std::string(memory.status().message()));
    return *std::move(memory);
  }

  client::Client client_;
  client::SharedMemory memory_;
  std::vector<v1::AttendRequest> requests_;
  Mutex mu_;
  std::vector<size_t> free_slots_ ABSL_GUARDED_BY(mu_);
};

void CountTokens(benchmark::State& state, const Mix& mix) {
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(mix.tokens * (kRequests / kProblems)) *
                             static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

void BM_SaturationEngine(benchmark::State& state, DType dtype) {
  const Mix& mix = MixOf(dtype);
  for (auto _ : state) {
    Pump(kWindow).Run(kRequests, [&](int i, std::function<void()> done) {
      const auto ticket =
          BareEngine().Submit(mix.problems[i % kProblems].Request(),
                              [done = std::move(done)](absl::StatusOr<AttentionResult> result) {
                                if (!result.ok()) Die(std::string(result.status().message()));
                                done();
                              });
      if (!ticket.ok()) Die(std::string(ticket.status().message()));
    });
  }
  CountTokens(state, mix);
}

void BM_SaturationServer(benchmark::State& state, DType dtype) {
  const Mix& mix = MixOf(dtype);
  for (auto _ : state) {
    Pump(kWindow).Run(kRequests, [&](int i, std::function<void()> done) {
      Server().Call(kAttend, mix.wire[i % kProblems],
                    [done = std::move(done)](grpc::ByteBuffer) { done(); });
    });
  }
  CountTokens(state, mix);
}

void BM_SaturationShared(benchmark::State& state, DType dtype) {
  const Mix& mix = MixOf(dtype);
  SharedMix shared(mix);
  for (auto _ : state) {
    Pump(kWindow).Run(kRequests, [&](int i, std::function<void()> done) {
      const size_t slot = shared.TakeSlot();
      Server().Call(kAttend, shared.WireBytes(i % kProblems, slot),
                    [&shared, slot, done = std::move(done)](grpc::ByteBuffer) {
                      shared.GiveBack(slot);
                      done();
                    });
    });
  }
  CountTokens(state, mix);
}

// Runs `call` once per iteration and reports the median of its wall times in microseconds. One call
// before them waits for the engine's calibration.
template <typename Call>
void ReportMedian(benchmark::State& state, const Call& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  call();
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  state.counters["p50_us"] = times[times.size() / 2];
  state.counters["p99_us"] = times[times.size() * 99 / 100];
}

const AttentionProblem& SmallProblem() {
  static const AttentionProblem problem(kSmallTokens, kSmallHeads, kSmallHeadDim, DType::kFloat32,
                                        7);
  return problem;
}

void BM_LatencyKernel(benchmark::State& state) {
  const AttentionProblem& problem = SmallProblem();
  attention::Spec spec;
  spec.dtype = problem.dtype;
  spec.heads = spec.kv_heads = problem.heads;
  spec.head_dim = spec.value_dim = problem.head_dim;
  spec.softmax_scale = 1 / std::sqrt(static_cast<double>(problem.head_dim));
  const attention::Variant* variant = attention::FindVariant(attention::CpuVariants(), spec);
  const std::vector<int32_t> offsets = {0, static_cast<int32_t>(problem.tokens)};
  std::vector<std::byte> output(problem.query.size());
  attention::Problem packed;
  packed.query = problem.query.data();
  packed.key = problem.key.data();
  packed.value = problem.value.data();
  packed.output = output.data();
  packed.query_stride = packed.key_stride = packed.value_stride = packed.output_stride =
      problem.heads * problem.head_dim;
  packed.value_head_stride = problem.head_dim;
  packed.cu_seqlens_q = packed.cu_seqlens_k = offsets;
  ReportMedian(state, [&] {
    if (!variant->run(spec, {&packed, 1}, RunToEnd()).ok()) Die("the kernel failed");
  });
}

void BM_LatencyEngine(benchmark::State& state) {
  ReportMedian(state, [&] {
    Pump(1).Run(1, [&](int, std::function<void()> done) {
      (void)BareEngine().Submit(
          SmallProblem().Request(),
          [done = std::move(done)](absl::StatusOr<AttentionResult>) { done(); });
    });
  });
}

void BM_LatencyServer(benchmark::State& state) {
  client::Client client({.target = server_address});
  const v1::AttendRequest request = Message(SmallProblem());
  std::vector<v1::Timing> timings;
  ReportMedian(state, [&] {
    const auto response = client.Attend(request);
    if (!response.ok()) Die(response.error().ToString());
    timings.push_back(response->timing());
  });
  const auto median = [&](auto field) {
    std::vector<double> values;
    for (const v1::Timing& timing : timings) values.push_back((timing.*field)());
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  state.counters["decode_us"] = median(&v1::Timing::decode_us);
  state.counters["queue_us"] = median(&v1::Timing::queue_us);
  state.counters["compute_us"] = median(&v1::Timing::compute_us);
  state.counters["server_us"] = median(&v1::Timing::total_us);
}

BENCHMARK_CAPTURE(BM_SaturationEngine, fp32, DType::kFloat32)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_SaturationServer, fp32, DType::kFloat32)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_SaturationShared, fp32, DType::kFloat32)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_SaturationEngine, bf16, DType::kBFloat16)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_SaturationServer, bf16, DType::kBFloat16)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_SaturationShared, bf16, DType::kBFloat16)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_LatencyKernel)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_LatencyEngine)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_LatencyServer)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) {
  using castor::bench::TakeFlag;
  castor::bench::server_address = TakeFlag("server", &argc, argv);
  castor::server::KeepFreedMemory();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
