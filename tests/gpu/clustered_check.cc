// Clustered and improved clustered attention on a GPU: the kernels stage by stage against the
// twins, under a CUDA graph, and larger requests through the Device against the CPU's.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/cuda/clustered_shape.h"
#include "engine/kernels/cuda/clustered/clustered.h"
#include "tests/gpu/batches.h"
#include "tests/gpu/checks.h"
#include "tests/support/attention/clustered_problem.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/cuda/clustered_stages.h"
#include "tests/support/cuda/device_memory.h"
#include "tests/support/cuda/graph.h"
#include "tests/support/twins/clustered.h"

namespace castor::gpu {
namespace {

using attention::ClusteredStageErrors;
using attention::ClusteredStages;
using attention::GetElement;
using attention::ImprovedClusters;
using attention::kFloatTypes;
using attention::MakeSpec;
using attention::OwnedProblem;
using attention::PlainClusters;
using attention::Spec;
using attention::Tolerance;
using kernels::cuda::ClusteredPlan;
using kernels::cuda::ClusteredProblem;
using kernels::cuda::ClusteredShape;
using kernels::cuda::ClusteredWorkspace;

Kernel MakeKernel(int32_t clusters, int32_t topk, uint64_t seed) {
  if (topk == 0) return PlainClusters(clusters, seed);
  return ImprovedClusters(clusters, topk, seed);
}

class KernelRun {
 public:
  explicit KernelRun(OwnedProblem& problem)
      : problem_(problem),
        shape_(attention::cuda::ClusteredShapeOf(problem.spec)),
        query_(problem.query.bytes()),
        key_(problem.key.bytes()),
        value_(problem.value.bytes()),
        output_(nullptr, problem.output.bytes().size()) {
    plan_ = PlanClustered(shape_, problem.cu_seqlens_q, problem.cu_seqlens_k);
  }

  // Queues the kernels on `stream`. This object owns the memory and must outlive them.
  cudaError_t Queue(cudaStream_t stream) {
    if (workspace_ == nullptr) Upload();
    return kernels::cuda::Run(shape_, plan_, on_device_, stream);
  }

  void Upload() {
    const Clustered& clustering = ClusteringOf(problem_.spec);
    const attention::HashPlanes planes =
        attention::MakeHashPlanes(clustering, problem_.spec.head_dim);
    normals_ = std::make_unique<DeviceMemory>(planes.normals);
    biases_ = std::make_unique<DeviceMemory>(planes.biases);
    draws_ = std::make_unique<DeviceMemory>(attention::cuda::CentroidDraws(clustering));
    offsets_ = std::make_unique<DeviceMemory>(plan_.offsets);
    workspace_ = std::make_unique<DeviceMemory>(nullptr, plan_.workspace_bytes);
    const attention::Problem& view = problem_.view;
    on_device_ = {query_.as<void>(),       key_.as<void>(),        value_.as<void>(),
                  output_.as<void>(),      view.query_stride,      view.key_stride,
                  view.value_stride,       view.output_stride,     nullptr,
                  offsets_->as<int32_t>(), normals_->as<float>(),  biases_->as<float>(),
                  draws_->as<uint32_t>(),  workspace_->as<void>(), view.value_head_stride};
  }

  void ReadOutput() { output_.Read(problem_.output.data()); }
  const DeviceMemory& output() const { return output_; }

  // The stages' results.
  ClusteredStages Stages() const {
    const ClusteredWorkspace workspace = LayOut(shape_, plan_, workspace_->as<void>());
    const int64_t count = shape_.heads * problem_.view.query_tokens();
    return {ReadDevice(workspace.codes, count), ReadDevice(workspace.labels, count),
            ReadDevice(workspace.order, count)};
  }

 private:
  OwnedProblem& problem_;
  ClusteredShape shape_;
  ClusteredPlan plan_;
  DeviceMemory query_, key_, value_, output_;
  std::unique_ptr<DeviceMemory> normals_, biases_, draws_, offsets_, workspace_;
  ClusteredProblem on_device_;
};

// Compares codes, labels and order with the twin's functions, then the rows.
void CheckStages(OwnedProblem& problem, Report& report) {
  const Spec& spec = problem.spec;
  const std::string name = Describe(spec);
  KernelRun run(problem);
  cudaError_t error = run.Queue(nullptr);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (!report.Check(error == cudaSuccess, "runs: " + name)) {
    report.Note(cudaGetErrorString(error));
    return;
  }
  const ClusteredStageErrors errors = CompareClusteredStages(problem, run.Stages());
  report.Check(errors.labels_are_the_twins,
               "labels are Lloyd's for the same codes, bit for bit: " + name);
  report.Check(errors.sorted, "queries are in the order of their clusters: " + name);
  run.ReadOutput();
  if (errors.labels_are_exact) {
    const double relative = RelativeError(problem, ClusteredReference(spec, problem.view));
    report.Check(relative <= Tolerance(spec.dtype),
                 "rows, error " + Scientific(relative) + ": " + name);
  } else {
    report.Note("a query near a plane has another code in float64: rows not compared");
  }

  report.Check(ReplaysTheSame(run.output(), [&](cudaStream_t stream) { return run.Queue(stream); }),
               "a CUDA graph replays the same bytes: " + name);
}

double Distance(const std::vector<std::byte>& a, const std::vector<std::byte>& b, DType dtype) {
  const auto at = [dtype](const std::vector<std::byte>& bytes) {
    return [&bytes, dtype](int64_t i) { return GetElement(bytes.data(), dtype, i); };
  };
  return attention::Distance(static_cast<int64_t>(a.size() / SizeOf(dtype)), at(a), at(b));
}

}  // namespace

void CheckClusteredKernels(uint32_t seed, Report& report) {
  report.Section("clustered attention's kernels, stage by stage against the twin");
  std::mt19937 random(seed);
  const auto lengths = [&](int32_t longest) {
    return std::vector<int32_t>{1 + static_cast<int32_t>(random() % longest), 1,
                                1 + static_cast<int32_t>(random() % longest)};
  };
  for (const DType dtype : kFloatTypes) {
    for (const auto& [dim, value_dim] : std::vector<std::pair<int64_t, int64_t>>{
             {32, 32}, {64, 64}, {80, 80}, {96, 96}, {128, 128}, {7, 5}, {40, 72}, {160, 300}}) {
      for (const int32_t topk : {0, 32}) {
        OwnedProblem problem(MakeSpec(dtype, MakeKernel(12, topk, random()), 3, dim, value_dim),
                             lengths(700), lengths(1500));
        RandomizeAroundCentres(problem, 12, random);
        CheckStages(problem, report);
      }
    }
    // Many clusters, many top keys, and more of both than there are queries and keys.
    for (const auto& [clusters, topk] :
         std::vector<std::pair<int32_t, int32_t>>{{1, 1}, {300, 100}, {1500, 8}, {5000, 1024}}) {
      OwnedProblem problem(MakeSpec(dtype, MakeKernel(clusters, topk, random()), 2, 64, 64),
                           {1700, 5}, {900, 3});
      RandomizeAroundCentres(problem, 40, random);
      CheckStages(problem, report);
    }
  }
}

void CheckClustered(Device& device, Device& cpu, uint32_t seed, Report& report) {
  report.Section("clustered attention: " + device.info().name + " against the CPU, " +
                 "alone against in a batch");
  std::mt19937 random(seed);
  for (const DType dtype : kFloatTypes) {
    for (const int32_t topk : {0, 32}) {
      const Spec spec = MakeSpec(dtype, MakeKernel(100, topk, random()), 2, 64, 64);
      std::vector<RequestShape> requests(3);
      for (RequestShape& request : requests) {
        request.seed = random();
        request.query_lengths = {1 + static_cast<int32_t>(random() % 3000), 17};
        request.key_lengths = {1 + static_cast<int32_t>(random() % 6000), 33};
      }
      if (!report.SelectsNextCase()) continue;
      const std::string name = Describe(spec);
      const StagedBatch batch(device, spec, requests);
      const auto times = batch.Run(device);
      if (!report.Check(times.ok(), "runs: " + name +
                                        (times.ok() ? " on " + std::string(times->backend) : ""))) {
        report.Note(std::string(times.status().message()));
        continue;
      }
      const StagedBatch host(cpu, spec, requests);
      const bool host_ran = host.Run(cpu).ok();
      double worst = host_ran ? 0 : std::numeric_limits<double>::infinity();
      bool alone_same = true;
      for (size_t r = 0; r < requests.size(); ++r) {
        if (host_ran) worst = std::max(worst, Distance(batch.Output(r), host.Output(r), dtype));
        const StagedBatch alone(device, spec, {requests[r]});
        alone_same = alone_same && alone.Run(device).ok() && alone.Output(0) == batch.Output(r);
      }
      // Both round, and a query that lies almost on a plane may be in different clusters.
      report.Check(worst <= 3 * Tolerance(dtype),
                   "differs from the CPU by " + Scientific(worst) + ": " + name);
      report.Check(alone_same, "alone = in a batch, byte for byte: " + name);
    }
  }
  report.Check(device.healthy(), "the device is healthy");
}

}  // namespace castor::gpu
