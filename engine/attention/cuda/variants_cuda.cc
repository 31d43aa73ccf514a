#include "engine/attention/cuda/variants_cuda.h"

#include <c10/core/Device.h>
#include <c10/cuda/CUDAFunctions.h>

#include <array>

#include "engine/attention/cuda/tensors.h"
#include "engine/attention/cuda/vanilla_cuda.h"

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

at::Tensor ComputeSegment(Path path, const Spec& spec, const Sequences& sequences) {
  switch (path) {
    case Path::kFlash:
      return FlashAttention(spec, sequences);
    case Path::kCudnn:
      return CudnnAttention(spec, sequences);
    case Path::kEfficient:
      return EfficientAttention(spec, sequences);
    case Path::kMath:
      return MathAttention(spec, sequences);
  }
  return {};
}

// The backend's name in reports: the row's own, unless cuDNN took some or all sequences.
std::string_view BackendOf(const Variant& variant, std::span<const Segment> segments) {
  size_t cudnn = 0;
  for (const Segment& segment : segments) cudnn += segment.path == Path::kCudnn;
  if (cudnn == 0) return variant.backend;
  return cudnn == segments.size() ? "cuda-cudnn" : "cuda-cudnn+flash";
}

Computed ComputeVanilla(const Variant& variant, Path base, const Spec& spec, const Problem& problem,
                        at::Device device) {
  const std::vector<Segment> segments =
      PlanSegments(spec, base, problem.cu_seqlens_q, problem.cu_seqlens_k, g_capabilities);
  const at::Tensor query = ViewOf(problem.query, problem.query_tokens(), spec.heads, spec.head_dim,
                                  problem.query_stride, spec.dtype, device);
  const at::Tensor key = ViewOf(problem.key, problem.key_tokens(), spec.heads, spec.head_dim,
                                problem.key_stride, spec.dtype, device);
  const at::Tensor value = ViewOf(problem.value, problem.key_tokens(), spec.heads, spec.value_dim,
                                  problem.value_stride, spec.dtype, device);
  Computed computed{{}, BackendOf(variant, segments)};
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
                              segment.count};
    computed.outputs.push_back({query_first, ComputeSegment(segment.path, spec, sequences)});
  }
  return computed;
}

template <Path base>
Computed ComputeRow(const Variant& variant, const Spec& spec, const Problem& problem,
                    at::Device device) {
  return ComputeVanilla(variant, base, spec, problem, device);
}

using ComputeFn = Computed (*)(const Variant&, const Spec&, const Problem&, at::Device);

// Variant::run of row `index`: computes, and copies the rows to where the problem wants them.
template <size_t index>
absl::Status RunRow(const Spec& spec, std::span<const Problem> problems);

constexpr std::array<Variant, 3> kVariants = {{
    {KernelName::kVanilla, "cuda-flash", SupportsFlash, RunRow<0>},
    {KernelName::kVanilla, "cuda-efficient", SupportsEfficient, RunRow<1>},
    {KernelName::kVanilla, "cuda-math", SupportsMath, RunRow<2>},
}};

// What each row computes with, in the same order.
constexpr std::array<ComputeFn, kVariants.size()> kCompute = {
    ComputeRow<Path::kFlash>, ComputeRow<Path::kEfficient>, ComputeRow<Path::kMath>};

template <size_t index>
absl::Status RunRow(const Spec& spec, std::span<const Problem> problems) {
  const at::Device device(at::kCUDA, c10::cuda::current_device());
  for (const Problem& problem : problems) {
    const Computed computed = kCompute[index](kVariants[index], spec, problem, device);
    const at::Tensor output = ViewOf(problem.output, problem.query_tokens(), spec.heads,
                                     spec.value_dim, problem.output_stride, spec.dtype, device);
    for (const OutputRows& part : computed.outputs) {
      output.narrow(0, part.first, part.rows.size(0)).copy_(part.rows, /*non_blocking=*/true);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void SetCapabilities(const Capabilities& capabilities) { g_capabilities = capabilities; }

std::span<const Variant> CudaVariants() { return kVariants; }

Computed Compute(const Variant& variant, const Spec& spec, const Problem& problem,
                 at::Device device) {
  return kCompute[&variant - kVariants.data()](variant, spec, problem, device);
}

}  // namespace castor::attention::cuda
