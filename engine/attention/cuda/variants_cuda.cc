#include "engine/attention/cuda/variants_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <array>
#include <utility>
#include <vector>

#include "engine/attention/cuda/cast_shape.h"
#include "engine/attention/cuda/choice.h"
#include "engine/attention/cuda/tensors.h"
#include "engine/attention/cuda/vanilla_cuda.h"
#include "engine/kernels/count.h"
#include "engine/kernels/cuda/cast/cast.h"

namespace castor::attention::cuda {
namespace {

// Written once by SetCapabilities, before any other thread knows of the device.
Capabilities g_capabilities;

bool IsVanilla(const Spec& spec) { return std::holds_alternative<Vanilla>(spec.kernel); }
bool SupportsFlash(const Spec& spec) { return IsVanilla(spec) && FlashFits(spec, g_capabilities); }
bool SupportsEfficient(const Spec& spec) {
  return IsVanilla(spec) && EfficientFits(spec, g_capabilities);
}
bool SupportsMath(const Spec& spec) { return IsVanilla(spec) && IsFloating(spec.dtype); }

// The rows of some sequences, and the log-sum-exp where the spec has it, which is then kMath's.
std::pair<at::Tensor, at::Tensor> ComputeSegment(Path path, const Spec& spec,
                                                 const Sequences& sequences) {
  switch (path) {
    case Path::kFlash:
      return {FlashAttention(spec, sequences), {}};
    case Path::kEfficient:
      return {EfficientAttention(spec, sequences), {}};
    case Path::kMath:
      return MathAttention(spec, sequences);
  }
  return {};
}

template <Path base>
Computed ComputeVanilla(std::string_view row, const Spec& spec, const Problem& problem,
                        at::Device device) {
  const std::vector<Segment> segments =
      PlanSegments(spec, base, problem.cu_seqlens_q, problem.cu_seqlens_k);
  const at::Tensor query = ViewOf(problem.query, problem.query_tokens(), spec.heads, spec.head_dim,
                                  problem.query_stride, spec.dtype, device);
  const at::Tensor key = ViewOf(problem.key, problem.key_tokens(), spec.kv_heads, spec.head_dim,
                                problem.key_stride, spec.dtype, device);
  const at::Tensor value =
      ViewOf(problem.value, problem.key_tokens(), spec.kv_heads, spec.value_dim,
             problem.value_stride, problem.value_head_stride, spec.dtype, device);
  Computed computed{{}, row};
  for (const Segment& segment : segments) {
    const int64_t query_first = problem.cu_seqlens_q[segment.first];
    const int64_t query_count = problem.cu_seqlens_q[segment.first + segment.count] - query_first;
    const int64_t key_first = problem.cu_seqlens_k[segment.first];
    const int64_t key_count = problem.cu_seqlens_k[segment.first + segment.count] - key_first;
    if (query_count == 0) continue;
    const Sequences sequences{query.narrow(0, query_first, query_count),
                              key.narrow(0, key_first, key_count),
                              value.narrow(0, key_first, key_count),
                              problem.cu_seqlens_q,
                              problem.cu_seqlens_k,
                              segment.first,
                              segment.count,
                              problem};
    auto [rows, log_sum_exp] = ComputeSegment(segment.path, spec, sequences);
    computed.outputs.push_back({query_first, std::move(rows), std::move(log_sum_exp)});
  }
  return computed;
}

template <Path base>
int64_t VanillaStep(const Spec& spec, int64_t query_tokens, int64_t key_tokens) {
  return QueryStep(spec, base, query_tokens, key_tokens, g_capabilities);
}

template <Path base>
int64_t VanillaWorkspace(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                         std::span<const int32_t> cu_seqlens_k) {
  return VanillaWorkspaceBytes(spec, base, cu_seqlens_q, cu_seqlens_k);
}

// The other kernels compute a sequence whole, since a query's row depends on the other queries.
int64_t NoStep(const Spec&, int64_t, int64_t) { return 0; }

// A row of the table: the fields of Variant, and the function that computes. It gets the row's
// backend for reports.
struct Row {
  KernelName kernel;
  std::string_view backend;
  bool (*supports)(const Spec& spec);
  Computed (*compute)(std::string_view backend, const Spec& spec, const Problem& problem,
                      at::Device device);
  int64_t (*query_step)(const Spec& spec, int64_t query_tokens, int64_t key_tokens);
  int64_t (*workspace_bytes)(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                             std::span<const int32_t> cu_seqlens_k) = nullptr;
};

// The rows of each kernel, best first.
constexpr auto kRows = std::to_array<Row>({
    {KernelName::kVanilla, "cuda-flash", SupportsFlash, ComputeVanilla<Path::kFlash>,
     VanillaStep<Path::kFlash>, VanillaWorkspace<Path::kFlash>},
    {KernelName::kVanilla, "cuda-efficient", SupportsEfficient, ComputeVanilla<Path::kEfficient>,
     VanillaStep<Path::kEfficient>, VanillaWorkspace<Path::kEfficient>},
    {KernelName::kVanilla, "cuda-math", SupportsMath, ComputeVanilla<Path::kMath>,
     VanillaStep<Path::kMath>, VanillaWorkspace<Path::kMath>},
    {KernelName::kClustered, "cuda-clustered", ClusteredFits, ComputeClustered, NoStep,
     ClusteredWorkspaceBytes},
    {KernelName::kImprovedClustered, "cuda-clustered", ClusteredFits, ComputeClustered, NoStep,
     ClusteredWorkspaceBytes},
    {KernelName::kCast, "cuda-cast", CastFits, ComputeCast, NoStep, CastWorkspaceBytes},
});

// Variant::run of row `index`: computes, and copies the rows to where the problem wants them.
template <size_t index>
absl::Status RunRow(const Spec& spec, std::span<const Problem> problems, RunControl& control) {
  const at::Device device(at::kCUDA, c10::cuda::current_device());
  for (const Problem& problem : problems) {
    if (absl::Status status = control.Checkpoint(); !status.ok()) return status;
    const Computed computed = kRows[index].compute(kRows[index].backend, spec, problem, device);
    const at::Tensor output = ViewOf(problem.output, problem.query_tokens(), spec.heads,
                                     spec.value_dim, problem.output_stride, spec.dtype, device);
    for (const OutputRows& part : computed.outputs) {
      output.narrow(0, part.first, part.rows.size(0)).copy_(part.rows, /*non_blocking=*/true);
    }
  }
  return absl::OkStatus();
}

template <size_t... indices>
constexpr std::array<Variant, kRows.size()> MakeVariants(std::index_sequence<indices...>) {
  return {Variant{kRows[indices].kernel, kRows[indices].backend, kRows[indices].supports,
                  RunRow<indices>, kRows[indices].workspace_bytes}...};
}

constexpr std::array<Variant, kRows.size()> kVariants =
    MakeVariants(std::make_index_sequence<kRows.size()>());

}  // namespace

void SetCapabilities(const Capabilities& capabilities) { g_capabilities = capabilities; }

std::span<const Variant> CudaVariants() { return kVariants; }

void Computed::Append(Computed piece, int64_t first) {
  for (OutputRows& part : piece.outputs) {
    part.first += first;
    outputs.push_back(std::move(part));
  }
  backend = piece.backend;
}

Computed Compute(const Variant& variant, const Spec& spec, const Problem& problem,
                 at::Device device) {
  return kRows[&variant - kVariants.data()].compute(variant.backend, spec, problem, device);
}

int64_t QueryStep(const Variant& variant, const Spec& spec, int64_t query_tokens,
                  int64_t key_tokens) {
  return kRows[&variant - kVariants.data()].query_step(spec, query_tokens, key_tokens);
}

Computed ComputeCast(std::string_view backend, const Spec& spec, const Problem& problem,
                     at::Device device) {
  const kernels::cuda::CastShape shape = CastShapeOf(spec);
  const at::TensorOptions options = at::TensorOptions().device(device);
  const at::Tensor output = at::empty({problem.query_tokens(), spec.heads, spec.value_dim},
                                      options.dtype(ScalarTypeOf(spec.dtype)));
  // Both belong to the current stream, so their memory is not reused before the kernels have run.
  const int64_t bytes = kernels::cuda::CastWorkspaceBytes(shape, problem.cu_seqlens_q);
  TORCH_CHECK_WITH(OutOfMemoryError, bytes != Count::kMost,
                   "the batch has more pieces of work than grids hold");
  const at::Tensor workspace = at::empty({bytes}, options.dtype(at::kByte));
  // The tables begin with an offset of 0, so UploadOffsets can upload and cache them.
  const std::vector<int32_t> tables =
      kernels::cuda::MakeCastTables(shape, problem.cu_seqlens_q, problem.cast.layer_of_sequence);
  const at::Tensor uploaded =
      UploadOffsets(tables, 0, static_cast<int64_t>(tables.size()) - 1, device);

  kernels::cuda::CastBatch batch = CastBatchOf(problem);
  batch.output = output.mutable_data_ptr();
  batch.output_stride = spec.heads * spec.value_dim;
  batch.tables = uploaded.const_data_ptr<int32_t>();
  batch.workspace = workspace.mutable_data_ptr();
  C10_CUDA_CHECK(Run(shape, batch, c10::cuda::getCurrentCUDAStream(device.index()).stream()));
  return {{{0, output, {}}}, backend};
}

}  // namespace castor::attention::cuda
