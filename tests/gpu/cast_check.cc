// CAST on a GPU against its twin: the kernels stage by stage, and requests through the Device.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "engine/attention/cast_reference.h"
#include "engine/attention/cuda/cast_shape.h"
#include "engine/kernels/cuda/cast.h"
#include "engine/kernels/cuda/cast_args.cuh"
#include "tests/gpu/batches.h"
#include "tests/gpu/checks.h"
#include "tests/unit/attention/cast_problem.h"
#include "tests/unit/kernels_cuda/cast_exact.h"

namespace castor::gpu {
namespace {

using attention::CastMembers;
using attention::CastProblem;
using attention::Spec;
using kernels::cuda::CastArgs;
using kernels::cuda::CastBatch;
using kernels::cuda::CastShape;

// Device memory with the contents of host memory.
class OnDevice {
 public:
  OnDevice(const void* host, size_t bytes) : bytes_(bytes) {
    if (cudaMalloc(&data_, std::max<size_t>(bytes, 1)) == cudaSuccess && host != nullptr) {
      cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice);
    }
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void Read(void* host) const { cudaMemcpy(host, data_, bytes_, cudaMemcpyDeviceToHost); }

 private:
  const size_t bytes_;
  void* data_ = nullptr;
};

template <typename T>
std::vector<T> Read(const T* device, int64_t count) {
  std::vector<T> host(count);
  cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost);
  return host;
}

Spec MakeSpec(DType dtype, int64_t heads, int64_t dim, int64_t value_dim, int64_t surrogates,
              const Cast& kernel) {
  Spec spec;
  spec.dtype = dtype;
  spec.heads = heads;
  spec.head_dim = dim;
  spec.value_dim = value_dim;
  spec.surrogates = surrogates;
  spec.softmax_scale = 1 / std::sqrt(static_cast<double>(dim));
  spec.kernel = kernel;
  return spec;
}

std::string Describe(const Spec& spec) {
  const Cast& cast = std::get<Cast>(spec.kernel);
  std::string name = std::string(NameOf(spec.dtype)) + " H=" + std::to_string(spec.heads) +
                     " d=" + std::to_string(spec.head_dim) +
                     " dv=" + std::to_string(spec.value_dim) +
                     " Nc=" + std::to_string(spec.surrogates);
  if (cast.cluster_size > 0) name += " kappa=" + std::to_string(cast.cluster_size);
  if (cast.clustering == Cast::Clustering::kSingleAssignmentTopK) name += " single";
  if (cast.attention_function == Cast::AttentionFunction::kLaplace) name += " laplace";
  if (cast.gate_temperature == Cast::GateTemperature::kNone) name += " ungated";
  if (cast.head_clustering == Cast::HeadClustering::kPerHead) name += " per head";
  return name;
}

// Captures a run into a graph, replays it, and compares what `output`, the batch's, then holds.
bool SameFromGraph(const CastShape& shape, const CastBatch& batch, const OnDevice& output) {
  std::vector<std::byte> before(output.bytes());
  std::vector<std::byte> after(output.bytes());
  output.Read(before.data());
  cudaMemset(output.data(), 0xff, output.bytes());
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  bool ok = cudaStreamCreate(&stream) == cudaSuccess &&
            cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
  ok = ok && Run(shape, batch, stream) == cudaSuccess;
  ok = ok && cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
       cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess &&
       cudaGraphLaunch(executable, stream) == cudaSuccess &&
       cudaStreamSynchronize(stream) == cudaSuccess;
  if (executable != nullptr) cudaGraphExecDestroy(executable);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (stream != nullptr) cudaStreamDestroy(stream);
  output.Read(after.data());
  return ok && before == after;
}

// Runs the kernels on `layer` into its own output, and compares the stages: affinities with
// float64, clusters bit by bit with the serial loop over the same affinities, rows with the twin
// unless float64 chooses other clusters, between affinities that are as good as tied.
void CheckStages(CastProblem& layer, Report& report) {
  const Spec& spec = layer.problem.spec;
  const Cast& cast = std::get<Cast>(spec.kernel);
  attention::Problem& view = layer.problem.view;
  const CastShape shape = attention::cuda::CastShapeOf(spec);
  const std::vector<int32_t> tables = kernels::cuda::MakeCastTables(shape, view.cu_seqlens_q, {});
  const auto upload = [](const attention::Elements& elements) {
    return std::make_unique<OnDevice>(elements.data(), elements.bytes().size());
  };
  const auto query = upload(layer.problem.query);
  const auto key = upload(layer.problem.key);
  const auto value = upload(layer.problem.value);
  const auto output = upload(layer.problem.output);
  const auto surrogates = upload(layer.surrogates);
  const OnDevice gate(layer.gate.data(), layer.gate.size() * sizeof(float));
  const OnDevice uploaded(tables.data(), tables.size() * sizeof(int32_t));
  const OnDevice workspace(nullptr, kernels::cuda::CastWorkspaceBytes(shape, view.cu_seqlens_q));
  CastBatch batch;
  batch.query = query->data();
  batch.key = key->data();
  batch.value = value->data();
  batch.output = output->data();
  batch.surrogates = surrogates->data();
  batch.gate = static_cast<const float*>(gate.data());
  batch.query_stride = view.query_stride;
  batch.key_stride = view.key_stride;
  batch.value_stride = view.value_stride;
  batch.output_stride = view.output_stride;
  batch.cu_seqlens = view.cu_seqlens_q;
  batch.tables = static_cast<const int32_t*>(uploaded.data());
  batch.workspace = workspace.data();
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  batch.cluster_blocks = major >= 9 ? 8 : 1;
  batch.early_launches = major >= 9;
  cudaError_t error = Run(shape, batch, nullptr);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (!report.Check(error == cudaSuccess, "runs: " + Describe(spec))) {
    report.Note(cudaGetErrorString(error));
    return;
  }
  output->Read(view.output);
  report.Check(SameFromGraph(shape, batch, *output), "a captured graph replays to the same bytes");

  const CastArgs args = MakeCastArgs(shape, batch);
  const int64_t rows = int64_t{args.clusterings} * shape.clusters;
  const std::vector<float> affinities = Read(args.affinities, view.query_tokens() * rows);
  const int32_t slots = tables[2 * view.cu_seqlens_q.size() - 1];
  const std::vector<int32_t> members = Read(args.members, slots * rows);
  const std::vector<int32_t> counts = Read(args.counts, view.sequences() * rows);
  bool same_as_loop = true;
  bool same_as_exact = true;
  double worst = 0;
  int64_t slot = 0;
  for (int64_t s = 0; s < view.sequences(); ++s) {
    const int64_t first = view.cu_seqlens_q[s];
    const int64_t tokens = view.cu_seqlens_q[s + 1] - first;
    const int64_t size = std::min<int64_t>(
        tokens,
        cast.cluster_size > 0 ? cast.cluster_size : (tokens + shape.clusters - 1) / shape.clusters);
    for (int64_t g = 0; g < args.clusterings; ++g) {
      const bool per_head = shape.per_head;
      const std::vector<double> exact =
          attention::ExactCastAffinities(layer, s, per_head ? g : 0, per_head ? g + 1 : spec.heads);
      std::vector<double> own(exact.size());
      std::vector<std::vector<int64_t>> chosen(shape.clusters);
      for (int64_t c = 0; c < shape.clusters; ++c) {
        const float* const row =
            affinities.data() + first * rows + (g * shape.clusters + c) * tokens;
        for (int64_t i = 0; i < tokens; ++i) {
          own[i * shape.clusters + c] = row[i];
          worst = std::max(worst, std::abs(row[i] - exact[i * shape.clusters + c]));
        }
        const int32_t* const list = members.data() + slot * rows + (g * shape.clusters + c) * size;
        chosen[c].assign(list, list + counts[s * rows + g * shape.clusters + c]);
      }
      same_as_loop =
          same_as_loop && chosen == CastMembers(own, shape.clusters, size, cast.clustering);
      same_as_exact =
          same_as_exact && chosen == CastMembers(exact, shape.clusters, size, cast.clustering);
    }
    slot += size;
  }
  report.Check(worst <= 1e-5 * static_cast<double>(spec.heads),
               "affinities, worst error " + Scientific(worst));
  report.Check(same_as_loop, "clusters are the serial loop's");
  if (!same_as_exact) {
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
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (int reading = 0; reading < 16; ++reading) {
      Cast cast;
      cast.clustering = static_cast<Cast::Clustering>(reading & 1);
      cast.attention_function = static_cast<Cast::AttentionFunction>(reading >> 1 & 1);
      cast.gate_temperature = static_cast<Cast::GateTemperature>(reading >> 2 & 1);
      cast.head_clustering = static_cast<Cast::HeadClustering>(reading >> 3 & 1);
      CastProblem layer(MakeSpec(dtype, 4, 64, 64, 1 + random() % 20, cast),
                        {1 + static_cast<int32_t>(random() % 700), 1, 257}, random);
      CheckStages(layer, report);
    }
    for (const int64_t dim : {7, 32, 36, 80, 96, 128, 160}) {
      Cast cast;
      cast.cluster_size = static_cast<int32_t>(random() % 200);
      CastProblem layer(MakeSpec(dtype, 3, dim, random() % 2 ? dim : 40, 5, cast), {300, 77},
                        random);
      CheckStages(layer, report);
    }
    for (const auto clustering :
         {Cast::Clustering::kTopK, Cast::Clustering::kSingleAssignmentTopK}) {
      Cast cast;
      cast.clustering = clustering;
      CastProblem many(MakeSpec(dtype, 2, 64, 64, 300, cast), {1500}, random);
      CheckStages(many, report);
      CastProblem full(MakeSpec(dtype, 2, 64, 64, 16, cast), {4096}, random);
      CheckStages(full, report);
    }
  }
}

void CheckCast(Device& device, uint32_t seed, Report& report) {
  report.Section("CAST through the device: requests that share a layer, and one with its own");
  std::mt19937 random(seed);
  const std::shared_ptr<HostPool> pool = device.host_pool();
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const Spec spec = MakeSpec(dtype, 4, 64, 64, 6, Cast{});
    if (attention::FindVariant(device.variants(), spec) == nullptr) {
      report.Note("not served: " + Describe(spec));
      continue;
    }
    CastProblem first(spec, {200, 31}, random);
    CastProblem second(spec, {90}, random);
    CastProblem third(spec, {1, 140}, random);
    second.surrogates = first.surrogates;
    const CastProblem* const all[] = {&first, &second, &third};

    // Staging memory of the device, and a layer that lies elsewhere.
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
      auto execution = device.Launch(batch);
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
