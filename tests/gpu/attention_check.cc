#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/batches.h"
#include "tests/gpu/checks.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"

namespace castor::gpu {
namespace {

using attention::MakeSpec;
using attention::Spec;
using attention::Tolerance;

constexpr int kReferenceRows = 24;  // of each sequence

struct Case {
  Spec spec;
  std::vector<RequestShape> requests;
};

std::vector<RequestShape> RandomRequests(std::mt19937& random, bool cross, int longest) {
  std::vector<RequestShape> requests(1 + random() % 6);
  for (RequestShape& request : requests) {
    request.seed = random();
    const int sequences = 1 + static_cast<int>(random() % 4);
    for (int s = 0; s < sequences; ++s) {
      const auto length = static_cast<int32_t>(1 + random() % longest);
      request.query_lengths.push_back(length);
      request.key_lengths.push_back(cross ? static_cast<int32_t>(1 + random() % longest) : length);
    }
  }
  return requests;
}

RequestShape SelfAttention(std::vector<int32_t> lengths, uint32_t seed) {
  return {lengths, lengths, seed};
}

std::vector<Case> Cases(std::mt19937& random) {
  std::vector<Case> cases;
  const std::vector<std::pair<int64_t, int64_t>> dims = {{64, 64},   {128, 128}, {32, 32}, {80, 80},
                                                         {96, 64},   {40, 72},   {7, 5},   {1, 1},
                                                         {256, 256}, {300, 20},  {64, 520}};
  for (const DType dtype : attention::kFloatTypes) {
    for (const auto& [head_dim, value_dim] : dims) {
      const int64_t heads = std::vector<int64_t>{1, 3, 8, 12}[random() % 4];
      const bool causal = random() % 2;
      cases.push_back({MakeSpec(dtype, Vanilla{causal}, heads, head_dim, value_dim),
                       RandomRequests(random, !causal && random() % 2, 300)});
    }
    // One long sequence and many short ones, down to a single token.
    Case uneven{MakeSpec(dtype, Vanilla{false}, 4, 64, 64), {SelfAttention({3000}, random())}};
    for (int i = 0; i < 20; ++i) uneven.requests.push_back(SelfAttention({1 + i % 3}, random()));
    cases.push_back(std::move(uneven));
    cases.push_back({MakeSpec(dtype, Vanilla{true}, 1, 64, 64), {SelfAttention({1}, random())}});
    cases.push_back(
        {attention::WithLogSumExp(MakeSpec(dtype, Vanilla{random() % 2 == 0}, 3, 64, 40)),
         RandomRequests(random, false, 300)});
  }
  // Multiples of the kernels' tiles, mixed with other lengths.
  for (const bool causal : {false, true}) {
    cases.push_back({MakeSpec(DType::kBFloat16, Vanilla{causal}, 8, 64, 64),
                     {SelfAttention({1024}, random()), SelfAttention({300, 2048, 17}, random()),
                      SelfAttention({1024, 1024}, random()), SelfAttention({1025}, random())}});
    cases.push_back({MakeSpec(DType::kFloat16, Vanilla{causal}, 12, 128, 128),
                     {SelfAttention({1152}, random()), SelfAttention({1280}, random())}});
  }
  return cases;
}

// The output must have the same bytes as in the batch: alone, repeated, and with another batch in
// flight.
void CheckInvariance(Device& device, const Case& c, const StagedBatch& together, Report& report) {
  bool alone_same = true;
  for (size_t r = 0; r < c.requests.size(); ++r) {
    const StagedBatch alone(device, c.spec, {c.requests[r]});
    alone_same = alone_same && alone.Run(device).ok() && alone.Output(0) == together.Output(r);
  }
  const std::string name =
      Describe(c.spec) + ", " + std::to_string(c.requests.size()) + " requests";
  report.Check(alone_same, "alone = in a batch, byte for byte: " + name);

  const StagedBatch first(device, c.spec, c.requests);
  const StagedBatch second(device, c.spec, c.requests);
  auto one = device.Launch(first.batch(), RunToEnd());
  auto two = device.depth() > 1 ? device.Launch(second.batch(), RunToEnd()) : nullptr;
  bool same = one.ok() && (*one)->Wait().ok();
  if (device.depth() > 1) same = same && two.ok() && (*two)->Wait().ok();
  for (size_t r = 0; same && r < c.requests.size(); ++r) {
    same = first.Output(r) == together.Output(r) &&
           (device.depth() == 1 || second.Output(r) == together.Output(r));
  }
  report.Check(same, "two batches in flight = one: " + name);
}

}  // namespace

void CheckAttention(Device& device, Device& cpu, uint32_t seed, Report& report) {
  report.Section("exact attention: " + device.info().name + " against float64 and the CPU");
  std::mt19937 random(seed);
  for (const Case& c : Cases(random)) {
    if (!report.SelectsNextCase()) continue;
    const StagedBatch batch(device, c.spec, c.requests);
    const auto times = batch.Run(device);
    const std::string name = Describe(c.spec);
    if (!report.Check(
            times.ok(),
            "runs: " + name + (times.ok() ? " on " : ": ") +
                std::string(times.ok() ? times->backend
                                       : std::string_view(times.status().message().data(),
                                                          times.status().message().size())))) {
      continue;
    }
    const double tolerance = Tolerance(c.spec.dtype);
    const double error = batch.RelativeError(kReferenceRows, seed);
    const StagedBatch host(cpu, c.spec, c.requests);
    const bool host_ran = host.Run(cpu).ok();
    const double host_error = host.RelativeError(kReferenceRows, seed);
    report.Check(error <= tolerance && host_ran && host_error <= tolerance,
                 "error " + Scientific(error) + " (CPU " + Scientific(host_error) + ", allowed " +
                     Scientific(tolerance) + "): " + name);
    if (c.spec.log_sum_exp) {
      const double log_error = batch.LogSumExpError(host);
      report.Check(log_error <= 1e-5, "log-sum-exp, error " + Scientific(log_error) + ": " + name);
    }
    CheckInvariance(device, c, batch, report);
  }
  report.Check(device.healthy(), "the device is healthy");
}

}  // namespace castor::gpu
