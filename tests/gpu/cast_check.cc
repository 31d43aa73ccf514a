// CAST on a GPU against its twin: the kernels stage by stage, and requests through the Device.

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/attention/cuda/cast_shape.h"
#include "engine/kernels/cuda/cast/cast.h"
#include "engine/kernels/cuda/cast/cast_args.cuh"
#include "tests/gpu/checks.h"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/cuda/cast_stages.h"
#include "tests/support/cuda/device_memory.h"
#include "tests/support/cuda/graph.h"

namespace castor::gpu {
namespace {

using attention::CastOf;
using attention::CastProblem;
using attention::CastReading;
using attention::kCastReadings;
using attention::kFloatTypes;
using attention::MakeSpec;
using attention::Spec;
using attention::Tolerance;
using kernels::cuda::CastBatch;
using kernels::cuda::CastShape;
using kernels::cuda::CastStageErrors;
using kernels::cuda::CastStages;

// Runs the kernels on `layer` into its own output, checks the stages, and compares the rows with
// the twin's.
void CheckStages(CastProblem& layer, Report& report) {
  const Spec& spec = layer.problem.spec;
  attention::Problem& view = layer.problem.view;
  const CastShape shape = attention::cuda::CastShapeOf(spec);
  const std::vector<int32_t> tables = kernels::cuda::MakeCastTables(shape, view.cu_seqlens_q, {});
  const DeviceMemory query(layer.problem.query.bytes());
  const DeviceMemory key(layer.problem.key.bytes());
  const DeviceMemory value(layer.problem.value.bytes());
  const DeviceMemory output(nullptr, layer.problem.output.bytes().size());
  const DeviceMemory surrogates(layer.surrogates.bytes());
  const DeviceMemory gate(layer.gate);
  const DeviceMemory uploaded(tables);
  const DeviceMemory workspace(nullptr,
                               kernels::cuda::CastWorkspaceBytes(shape, view.cu_seqlens_q));
  CastBatch batch = attention::cuda::CastBatchOf(view);
  batch.query = query.as<void>();
  batch.key = key.as<void>();
  batch.value = value.as<void>();
  batch.output = output.as<void>();
  batch.surrogates = surrogates.as<void>();
  batch.gate = gate.as<float>();
  batch.tables = uploaded.as<int32_t>();
  batch.workspace = workspace.as<void>();
  cudaError_t error = Run(shape, batch, nullptr);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (!report.Check(error == cudaSuccess, "runs: " + Describe(spec))) {
    report.Note(cudaGetErrorString(error));
    return;
  }
  output.Read(view.output);
  // The stages' results, copied to where the host can read them.
  std::vector<std::byte> left = workspace.Read<std::byte>();
  CastBatch on_host = batch;
  on_host.tables = tables.data();
  on_host.workspace = left.data();
  const CastStageErrors errors = CompareCastStages(layer, CastStages(MakeCastArgs(shape, on_host)));
  report.Check(
      ReplaysTheSame(output, [&](cudaStream_t stream) { return Run(shape, batch, stream); }),
      "a captured graph replays to the same bytes");
  report.Check(errors.worst_affinity <= 1e-5 * static_cast<double>(spec.heads),
               "affinities, worst error " + Scientific(errors.worst_affinity));
  report.Check(errors.clusters_are_the_loops, "clusters are the serial loop's");
  if (!errors.clusters_are_exact) {
    report.Note("float64 chooses between near ties otherwise: rows not compared");
    return;
  }
  const double relative = RelativeError(layer.problem, layer.Reference());
  report.Check(relative <= Tolerance(spec.dtype), "rows, error " + Scientific(relative));
}

}  // namespace

void CheckCastKernels(uint32_t seed, Report& report) {
  report.Section("CAST's kernels, stage by stage against the twin");
  std::mt19937 random(seed);
  for (const DType dtype : kFloatTypes) {
    for (int reading = 0; reading < kCastReadings; ++reading) {
      CastProblem layer(MakeSpec(dtype, CastReading(reading), 4, 64, 64, 1 + random() % 20),
                        {1 + static_cast<int32_t>(random() % 700), 1, 257}, random);
      CheckStages(layer, report);
    }
    for (const int64_t dim : {7, 32, 36, 80, 96, 128, 160}) {
      const Cast cast = CastOf(static_cast<int32_t>(random() % 200));
      CastProblem layer(MakeSpec(dtype, cast, 3, dim, random() % 2 ? dim : 40, 5), {300, 77},
                        random);
      CheckStages(layer, report);
    }
    for (const auto clustering :
         {Cast::Clustering::kTopK, Cast::Clustering::kSingleAssignmentTopK}) {
      const Cast cast = CastOf(0, clustering);
      CastProblem many(MakeSpec(dtype, cast, 2, 64, 64, 300), {1500}, random);
      CheckStages(many, report);
      CastProblem full(MakeSpec(dtype, cast, 2, 64, 64, 16), {4096}, random);
      CheckStages(full, report);
    }
  }
}

void CheckCast(Device& device, uint32_t seed, Report& report) {
  report.Section("CAST through the device: requests that share a layer, and one with its own");
  std::mt19937 random(seed);
  const std::shared_ptr<HostPool> pool = device.host_pool();
  for (const DType dtype : kFloatTypes) {
    const Spec spec = MakeSpec(dtype, Cast{}, 4, 64, 64, 6);
    if (attention::FindVariant(device.variants(), spec) == nullptr) {
      report.Note("not served: " + Describe(spec));
      continue;
    }
    CastProblem first(spec, {200, 31}, random);
    CastProblem second(spec, {90}, random);
    CastProblem third(spec, {1, 140}, random);
    second.surrogates = first.surrogates;
    const CastProblem* const all[] = {&first, &second, &third};

    // The device's staging memory, and a layer in other memory.
    std::vector<HostBuffer> buffers;
    const auto stage = [&](const void* data, size_t bytes) {
      buffers.push_back(*pool->Allocate(bytes));
      std::memcpy(buffers.back().data(), data, bytes);
      return buffers.back().data();
    };
    AttentionBatch together;
    together.spec = spec;
    for (const CastProblem* layer : all) {
      attention::Problem problem = layer->problem.view;
      problem.query = stage(problem.query, layer->problem.query.bytes().size());
      problem.key = stage(problem.key, layer->problem.key.bytes().size());
      problem.value = stage(problem.value, layer->problem.value.bytes().size());
      problem.output = stage(problem.output, layer->problem.output.bytes().size());
      problem.cast.gate = reinterpret_cast<const float*>(
          stage(layer->gate.data(), layer->gate.size() * sizeof(float)));
      problem.cast.surrogates = (layer == &third ? third : first).surrogates.data();
      together.requests.push_back(problem);
    }
    const auto run = [&](const AttentionBatch& batch) {
      auto execution = device.Launch(batch, RunToEnd());
      return execution.ok() ? (*execution)->Wait().status() : execution.status();
    };
    const absl::Status status = run(together);
    if (!report.Check(status.ok(), Describe(spec) + ": " + std::string(status.message()))) continue;
    for (size_t r = 0; r < 3; ++r) {
      CastProblem& layer = const_cast<CastProblem&>(*all[r]);
      const attention::Problem& request = together.requests[r];
      const size_t bytes = layer.problem.output.bytes().size();
      std::memcpy(layer.problem.view.output, request.output, bytes);
      const double relative = RelativeError(layer.problem, layer.Reference());
      report.Check(relative <= Tolerance(dtype),
                   "request " + std::to_string(r) + ", error " + Scientific(relative));
      std::memset(request.output, 0xff, bytes);
      const bool ran = run({spec, {request}}).ok();
      report.Check(ran && std::memcmp(request.output, layer.problem.view.output, bytes) == 0,
                   "request " + std::to_string(r) + " has the same bytes alone");
    }
  }
}

}  // namespace castor::gpu
