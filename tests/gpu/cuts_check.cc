// Batches that the GPU's device cuts into launches against the same batches uncut, byte for byte.

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/cuda/cuda_device.h"
#include "tests/gpu/batches.h"
#include "tests/gpu/checks.h"
#include "tests/support/attention/spec.h"
#include "tests/support/checkpoints.h"

namespace castor::gpu {
namespace {

using attention::ImprovedClusters;
using attention::MakeSpec;
using attention::PlainClusters;
using attention::Spec;

constexpr double kUncut = std::numeric_limits<double>::infinity();
constexpr double kFinest = 0;  // cuts all that can be cut

struct CutCase {
  Spec spec;
  std::vector<RequestShape> requests;
};

// A long sequence, whose queries are a few ranges that fill a GPU, between short ones.
std::vector<RequestShape> Requests(std::mt19937& random, bool cross) {
  const auto length = [&](int32_t least, int32_t most) {
    return least + static_cast<int32_t>(random() % static_cast<uint32_t>(most - least + 1));
  };
  std::vector<RequestShape> requests(2);
  requests[0].query_lengths = {length(1, 50), length(2100, 3000)};
  requests[1].query_lengths = {length(1, 300), length(1, 300)};
  for (RequestShape& request : requests) {
    for (const int32_t queries : request.query_lengths) {
      request.key_lengths.push_back(cross ? length(1, 900) : queries);
    }
    request.seed = random();
  }
  return requests;
}

std::vector<CutCase> CutCases(std::mt19937& random) {
  std::vector<CutCase> cases;
  const auto add = [&](const Spec& spec, bool cross) {
    cases.push_back({spec, Requests(random, cross)});
  };
  for (const DType dtype : kFloatingDTypes) {
    for (const bool causal : {false, true}) {
      for (const int64_t dim : {64, 128, 36}) {
        add(MakeSpec(dtype, Vanilla{causal}, 40, dim, dim), !causal && random() % 2);
      }
    }
    add(MakeSpec(dtype, Vanilla{random() % 2 == 0}, 40, 300, 300), false);
    Spec plain = MakeSpec(dtype, Vanilla{}, 4, 64, 64);
    plain.softmax_scale = 0;  // what only the plain implementation takes
    add(plain, true);
    add(MakeSpec(dtype, PlainClusters(50, random()), 4, 64, 64), true);
    add(MakeSpec(dtype, ImprovedClusters(50, 16, random()), 4, 64, 64), true);
  }
  // Sequences that are cut, next to some that are as long as a range (with 12 heads and 132
  // multiprocessors 2816 queries).
  const Spec causal = MakeSpec(DType::kBFloat16, Vanilla{true}, 12, 64, 64);
  cases.push_back(
      {causal, {{{7001, 2816, 33}, {7001, 2816, 33}, static_cast<uint32_t>(random())}}});
  const Spec cross = MakeSpec(DType::kFloat16, Vanilla{}, 12, 64, 64);
  cases.push_back({cross, {{{7001, 2816, 33}, {2816, 2816, 9}, static_cast<uint32_t>(random())}}});
  return cases;
}

// All output bytes and the backend's name; or empty, with the reason noted.
std::vector<std::byte> Run(CudaDevice& device, StagedBatch& batch, size_t requests, double target,
                           RunControl& control, std::string* backend, Report& report) {
  batch.ClearOutputs();
  device.SetLaunchTarget(target);
  const auto ran = [&]() -> absl::StatusOr<ExecutionTimes> {
    auto execution = device.Launch(batch.batch(), control);
    if (!execution.ok()) return execution.status();
    return (*execution)->Wait();
  }();
  if (!ran.ok()) {
    report.Note(std::string(ran.status().message()));
    return {};
  }
  *backend = ran->backend;
  std::vector<std::byte> bytes;
  for (size_t r = 0; r < requests; ++r) {
    const std::vector<std::byte> output = batch.Output(r);
    bytes.insert(bytes.end(), output.begin(), output.end());
  }
  return bytes;
}

void CheckCase(CudaDevice& device, const CutCase& c, Report& report) {
  StagedBatch batch(device, c.spec, c.requests);
  std::string backend;
  std::string cut_backend;
  const auto run = [&](double target, RunControl& control, std::string* name) {
    return Run(device, batch, c.requests.size(), target, control, name, report);
  };
  AtEvery once;
  const std::vector<std::byte> whole = run(kUncut, once, &backend);
  const std::string name = Describe(c.spec) + " on " + backend;
  if (!report.Check(!whole.empty() && once.count() == 1, "uncut, one launch: " + name)) return;

  AtEvery pieces;
  const std::vector<std::byte> cut = run(kFinest, pieces, &cut_backend);
  report.Check(pieces.count() > 2 && cut == whole && cut_backend == backend,
               "cut into " + std::to_string(pieces.count()) + " = uncut, byte for byte: " + name);

  // Another batch, itself cut, at every checkpoint.
  StagedBatch short_batch(device, c.spec, {{{40, 3}, {40, 3}, c.requests.front().seed}});
  AtEvery short_alone;
  const std::vector<std::byte> expected =
      Run(device, short_batch, 1, kFinest, short_alone, &cut_backend, report);
  bool passed_same = !expected.empty();
  AtEvery passing([&] {
    std::string ignored;
    AtEvery inner;
    passed_same =
        Run(device, short_batch, 1, kFinest, inner, &ignored, report) == expected && passed_same;
    return absl::OkStatus();
  });
  const bool same = run(kFinest, passing, &cut_backend) == whole;
  report.Check(same && passed_same, "short batches pass, the bytes of both stay: " + name);

  int checkpoints = 0;
  AtEvery ending([&] {
    return ++checkpoints == 2 ? MakeError(Reason::kCancelled, "enough") : absl::OkStatus();
  });
  device.SetLaunchTarget(kFinest);
  const auto ended = device.Launch(batch.batch(), ending);
  AtEvery again;
  report.Check(ReasonOf(ended.status()) == Reason::kCancelled && checkpoints == 2 &&
                   run(kFinest, again, &cut_backend) == whole,
               "ends at a checkpoint, and runs again: " + name);
}

}  // namespace

void CheckCuts(uint32_t seed, Report& report) {
  report.Section("batches cut into launches against uncut ones");
  auto device = CudaDevice::Open(0, EngineOptions{});
  if (!report.Check(device.ok(), "opens the device again")) return;
  std::mt19937 random(seed);
  for (const CutCase& c : CutCases(random)) CheckCase(**device, c, report);
  report.Check((*device)->healthy(), "the device is healthy");
}

}  // namespace castor::gpu
