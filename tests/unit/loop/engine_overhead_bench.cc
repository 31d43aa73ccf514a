// The engine's own overhead: small requests through a device that computes next to nothing.
//
//   One     from Submit to the callback, one request at a time: two thread hops and back. The
//           medians of its stages are printed as counters, in microseconds.
//   Many    with 64 in flight: the cost of one request when no thread needs waking.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/assembly/internal.h"
#include "tests/unit/loop/fake_device.h"

namespace castor {
namespace {

class Overhead {
 public:
  Overhead() {
    EngineParts parts;
    parts.open_device = [](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<Device>> {
      return std::make_unique<FakeDevice>(std::make_shared<FakeScript>());
    };
    engine_ = *CreateEngineWithParts(EngineOptions{}, std::move(parts));
  }

  // `done` is called on a completion thread.
  template <typename Done>
  void Submit(Done done) {
    AttentionRequest request;
    request.query = {DType::kFloat32, {16, 2, 32}, {std::as_bytes(std::span(data_))}};
    request.key = request.query;
    request.value = request.query;
    auto ticket = engine_->Submit(
        std::move(request),
        [done](absl::StatusOr<AttentionResult> result) { done(result->report.timing); });
    if (!ticket.ok()) std::abort();
  }

 private:
  std::vector<float> data_ = std::vector<float>(16 * 2 * 32, 1.0f);
  std::unique_ptr<Engine> engine_;
};

double Median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void One(benchmark::State& state) {
  Overhead overhead;
  Mutex mu;
  CondVar answered;
  std::vector<double> total, submit, staged, queue, answer;
  for (auto _ : state) {
    bool done = false;
    Timing timing;
    TimePoint called;
    const TimePoint start = std::chrono::steady_clock::now();
    overhead.Submit([&](const Timing& reported) {
      MutexLock lock(mu);
      called = std::chrono::steady_clock::now();
      timing = reported;
      done = true;
      answered.NotifyOne();
    });
    const TimePoint submitted = std::chrono::steady_clock::now();
    MutexLock lock(mu);
    while (!done) answered.Wait(mu);
    total.push_back(Microseconds(start, called));
    submit.push_back(Microseconds(start, submitted));
    staged.push_back(timing.decode_us);
    queue.push_back(timing.queue_us);
    answer.push_back(total.back() - timing.decode_us - timing.queue_us);
  }
  state.counters["total_p50"] = Median(total);
  state.counters["submit_p50"] = Median(submit);
  state.counters["stage_p50"] = Median(staged);
  state.counters["queue_p50"] = Median(queue);
  state.counters["answer_p50"] = Median(answer);
}
BENCHMARK(One)->UseRealTime();

void Many(benchmark::State& state) {
  Overhead overhead;
  Mutex mu;
  CondVar changed;
  int in_flight = 0;
  for (auto _ : state) {
    {
      MutexLock lock(mu);
      while (in_flight == 64) changed.Wait(mu);
      ++in_flight;
    }
    overhead.Submit([&](const Timing&) {
      MutexLock lock(mu);
      const bool was_full = in_flight-- == 64;
      if (was_full || in_flight == 0) changed.NotifyOne();
    });
  }
  MutexLock lock(mu);
  while (in_flight > 0) changed.Wait(mu);
}
BENCHMARK(Many)->UseRealTime();

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
