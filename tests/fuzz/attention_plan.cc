// Takes an attention request with any numbers, legal or not, through Resolve, the plan, and the
// workspace of every row of both variant tables. For a request that passes, the counted memory must
// be at least a certain lower bound, or Count::kMost.
//
// No tensor is ever read: their files do not exist.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/attention/cast/cast_layer.h"
#include "engine/attention/cuda/choice.h"
#include "engine/attention/cuda/fits.h"
#include "engine/attention/resolve.h"
#include "engine/automatic/plan.h"
#include "engine/forecast/cost_model.h"
#include "engine/forecast/memory.h"
#include "engine/kernels/count.h"
#include "tests/fuzz/numbers.h"

namespace castor::fuzz {
namespace {

using attention::Count;
using attention::Resolved;
using attention::Spec;
using attention::Variant;

constexpr int64_t kMaxSequences = 64;
constexpr attention::cuda::Capabilities kHopper{90};

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

bool Flash(const Spec& spec) {
  return std::holds_alternative<Vanilla>(spec.kernel) && attention::cuda::FlashFits(spec, kHopper);
}
bool Efficient(const Spec& spec) {
  return std::holds_alternative<Vanilla>(spec.kernel) &&
         attention::cuda::EfficientFits(spec, kHopper);
}
bool Math(const Spec& spec) { return std::holds_alternative<Vanilla>(spec.kernel); }

// The GPU's table without the functions that compute.
std::span<const Variant> CudaVariants() {
  using attention::cuda::CastWorkspaceBytes;
  using attention::cuda::ClusteredWorkspaceBytes;
  static const std::vector<Variant> table = {
      {KernelName::kVanilla, "cuda-flash", Flash, nullptr},
      {KernelName::kVanilla, "cuda-efficient", Efficient, nullptr},
      {KernelName::kVanilla, "cuda-math", Math, nullptr},
      {KernelName::kClustered, "cuda-clustered", attention::cuda::ClusteredFits, nullptr,
       ClusteredWorkspaceBytes},
      {KernelName::kImprovedClustered, "cuda-clustered", attention::cuda::ClusteredFits, nullptr,
       ClusteredWorkspaceBytes},
      {KernelName::kCast, "cuda-cast", attention::cuda::CastFits, nullptr, CastWorkspaceBytes},
  };
  return table;
}

absl::StatusOr<std::shared_ptr<const attention::CastLayer>> FindLayer(std::string_view name) {
  static constexpr float kSurrogates[3 * 2 * 4] = {};
  static const auto* const layer = new auto(
      std::make_shared<const attention::CastLayer>(kSurrogates, /*surrogate_tokens=*/3, 2, 4));
  if (name == "m/0") return *layer;
  return attention::NoCastLayer(name);
}

CostModel Costs() {
  CostTerms prices;
  prices.fill(1);
  CostModel costs;
  for (const KernelName kernel :
       {KernelName::kVanilla, KernelName::kClustered, KernelName::kImprovedClustered}) {
    costs.Set(kernel, DType::kFloat32, prices);
  }
  return costs;
}

// A tensor in a file; `off` is added to the size that its shape needs.
TensorInput Tensor(DType dtype, std::vector<int64_t> shape, int64_t off) {
  TensorInput tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  const int64_t bytes = NumBytes(dtype, tensor.shape).value_or(0);
  tensor.file = FileRange{-1, 0, off > 0 ? (Count(bytes) + off).value() : bytes};
  return tensor;
}

void ReadClustered(NumberReader& in, Clustered* kernel) {
  kernel->clusters = static_cast<int32_t>(in.Number());
  kernel->iterations = static_cast<int32_t>(in.Number());
  kernel->bits = static_cast<int32_t>(in.Number());
}

struct Dims {
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
};

Kernel ReadKernel(NumberReader& in, DType dtype, const Dims& query, bool consistent) {
  switch (in.Byte() % 5) {
    case 0:
      return Vanilla{.causal = in.Byte() % 2 != 0};
    case 1: {
      Clustered kernel;
      ReadClustered(in, &kernel);
      return kernel;
    }
    case 2: {
      ImprovedClustered kernel;
      ReadClustered(in, &kernel);
      kernel.topk = static_cast<int32_t>(in.Number());
      kernel.rest_mass = static_cast<ImprovedClustered::RestMass>(in.Byte() & 1);
      kernel.rest_groups = 1 + in.Byte();
      return kernel;
    }
    case 3: {
      Cast kernel;
      const uint8_t reading = in.Byte();
      kernel.clustering = static_cast<Cast::Clustering>(reading & 1);
      kernel.attention_function = static_cast<Cast::AttentionFunction>(reading >> 1 & 1);
      kernel.gate_temperature = static_cast<Cast::GateTemperature>(reading >> 2 & 1);
      kernel.head_clustering = static_cast<Cast::HeadClustering>(reading >> 3 & 1);
      kernel.cluster_size = static_cast<int32_t>(in.Number());
      kernel.gate = Tensor(DType::kFloat32, {consistent ? query.tokens : in.Number()}, 0);
      if ((reading & 16) != 0) {
        kernel.surrogates = "m/" + std::to_string(reading >> 5 & 1);
      } else {
        const int64_t surrogates = in.Number();
        const int64_t heads = consistent ? query.heads : in.Number();
        const int64_t head_dim = consistent ? query.head_dim : in.Number();
        kernel.surrogates = Tensor(dtype, {surrogates, heads, head_dim}, 0);
      }
      return kernel;
    }
    default: {
      Automatic kernel;
      const uint8_t allowed = in.Byte();
      for (int name = 0; name < 4; ++name) {
        if ((allowed >> name & 1) != 0) kernel.allowed.push_back(static_cast<KernelName>(name));
      }
      kernel.max_relative_error = in.Raw<double>();
      return kernel;
    }
  }
}

void ReadScores(NumberReader& in, const Dims& query, const Dims& key, bool consistent,
                AttentionRequest* request) {
  const uint8_t parts = in.Byte();
  Positions& positions = request->positions;
  positions.window = {.left = in.Number(), .right = in.Number(), .always_visible = in.Number()};
  for (std::vector<int64_t>* first : {&positions.query, &positions.key}) {
    for (int count = in.Byte() % 9; count > 0; --count) first->push_back(in.Number());
  }
  if ((parts & 1) != 0) {
    const int64_t slopes = consistent ? std::clamp<int64_t>(query.heads, 0, 64) : in.Byte();
    positions.alibi_slopes.assign(slopes, in.Raw<float>());
  }
  if ((parts & 2) != 0) {
    const int64_t entries = in.Number();
    positions.relative_bias = Tensor(DType::kFloat32, {query.heads, entries}, 0);
  }
  if ((parts & 4) != 0) request->softcap = in.Raw<double>();
  if ((parts & 8) == 0) return;
  std::vector<int64_t> shape = request->key.shape;
  shape.resize(shape.size() - ((parts & 16) != 0 ? 1 : 2));
  request->key_bias = Tensor(DType::kFloat32, consistent ? shape : std::vector{key.tokens}, 0);
}

AttentionRequest ReadRequest(NumberReader& in, uint8_t flags) {
  AttentionRequest request;
  const auto dtype = static_cast<DType>(in.Byte() % 5);
  const bool consistent = (flags & 2) == 0;
  const int64_t batch = (flags & 4) == 0 ? 0 : in.Number();
  const Dims query = {in.Number(), in.Number(), in.Number()};
  const int64_t value_dim = in.Number();
  Dims key = {(flags & 8) == 0 ? query.tokens : in.Number(), consistent ? query.heads : in.Number(),
              consistent ? query.head_dim : in.Number()};
  const uint8_t sharing = (flags & 128) == 0 ? 0 : in.Byte();
  key.heads = std::max<int64_t>(std::min<int64_t>(key.heads, 1), key.heads / (1 + sharing % 8));
  const int64_t off = consistent ? 0 : in.Number();
  const auto shape = [&](int64_t tokens, int64_t heads, int64_t dim) {
    std::vector<int64_t> dims = {tokens, heads, dim};
    if ((flags & 4) != 0) dims.insert(dims.begin(), batch);
    return dims;
  };
  request.query = Tensor(dtype, shape(query.tokens, query.heads, query.head_dim), 0);
  request.key = Tensor(dtype, shape(key.tokens, key.heads, key.head_dim), 0);
  request.value_is_key_prefix = (sharing & 8) != 0;
  if (request.value_is_key_prefix) {
    request.value_dim = value_dim;
  } else {
    request.value = Tensor(dtype, shape(key.tokens, key.heads, value_dim), off);
  }
  if ((flags & 16) != 0) request.softmax_scale = in.Raw<double>();
  for (std::vector<int64_t>* lengths : {&request.query_lengths, &request.key_lengths}) {
    if ((flags & 32) == 0) continue;
    for (int count = in.Byte() % 9; count > 0; --count) lengths->push_back(in.Number());
  }
  request.fidelity_rows = static_cast<int32_t>(in.Number());
  Dims all = query;
  if ((flags & 4) != 0) all.tokens = CheckedMultiply(batch, query.tokens).value_or(-1);
  request.kernel = ReadKernel(in, dtype, all, consistent);
  request.return_log_sum_exp = (flags & 64) != 0;
  if ((flags & 128) != 0) ReadScores(in, all, key, consistent, &request);
  return request;
}

// A lower bound on a row's workspace, in floating point, which does not wrap.
double Least(const Variant& row, const Resolved& resolved) {
  const Spec& spec = resolved.spec;
  const bool cuda = row.backend.starts_with("cuda");
  const auto heads = static_cast<double>(spec.heads);
  const auto tokens = static_cast<double>(resolved.query_tokens);
  if (row.kernel == KernelName::kVanilla) {
    return cuda ? 0 : 4.0 * 128 * static_cast<double>(spec.head_dim + spec.value_dim);
  }
  if (const Clustered* const clustering = attention::ClusteringOf(spec.kernel)) {
    // Without a hash there are no codes.
    const bool hashes = clustering->clustering == Clustered::Clustering::kHash;
    return (cuda ? 16 : hashes ? 12 : 4) * tokens * heads;
  }
  int64_t longest = 0;
  const std::vector<int32_t>& offsets = resolved.cu_seqlens_q;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    longest = std::max<int64_t>(longest, offsets[s + 1] - offsets[s]);
  }
  const auto clusters = static_cast<double>(spec.surrogates);
  const double summaries = clusters * static_cast<double>(spec.value_dim);
  return 4.0 * clusters * static_cast<double>(longest) + (cuda ? 2 * heads : 4) * summaries;
}

void CheckWorkspace(const Variant& row, const Resolved& resolved) {
  if (row.kernel != NameOf(resolved.spec.kernel) || !row.supports(resolved.spec)) return;
  if (row.workspace_bytes == nullptr) return;
  const int64_t bytes =
      row.workspace_bytes(resolved.spec, resolved.cu_seqlens_q, resolved.cu_seqlens_k);
  Require(bytes >= 0, "a negative workspace");
  Require(bytes == Count::kMost || static_cast<double>(bytes) >= Least(row, resolved) * 0.999,
          "a workspace below what the kernel surely takes");
}

void CheckMemory(const Plan& plan, const Resolved& resolved, std::span<const Variant> variants) {
  const MemoryNeed in_place = MemoryForecast(variants, /*copies=*/false).Of(plan, resolved);
  const MemoryNeed copied = MemoryForecast(variants, /*copies=*/true).Of(plan, resolved);
  Require(in_place.own >= 0 && in_place.shared >= 0 && copied.own >= 0 && copied.shared >= 0,
          "a negative need");
  Require(copied.bytes() >= resolved.staging_bytes, "copies of less than the tensors");
  const Variant* const row = attention::FindVariant(variants, resolved.spec);
  if (row == nullptr || row->workspace_bytes == nullptr) return;
  const int64_t workspace =
      row->workspace_bytes(resolved.spec, resolved.cu_seqlens_q, resolved.cu_seqlens_k);
  Require(in_place.bytes() >= workspace && copied.bytes() >= workspace,
          "a need below the kernel's workspace");
}

void CheckPlan(const AttentionRequest& request, std::span<const Variant> variants,
               Resolved resolved) {
  static const CostModel costs = Costs();
  FidelitySampling sampling(1);
  Require(resolved.staging_bytes > 0, "no staging memory");
  Require(resolved.query_tokens == resolved.cu_seqlens_q.back() &&
              resolved.key_tokens == resolved.cu_seqlens_k.back(),
          "offsets that are not of all tokens");
  const Plan plan = PlanAttention(
      request, variants, [](const auto&... problem) { return costs.Predict(problem...); }, sampling,
      &resolved);
  Require(CostOf(plan, resolved).bytes >= TensorCost(resolved).bytes, "a cost below its parts");
  CheckMemory(plan, resolved, variants);
  for (const Variant& row : attention::CpuVariants()) CheckWorkspace(row, resolved);
  for (const Variant& row : CudaVariants()) CheckWorkspace(row, resolved);
  if (std::holds_alternative<Vanilla>(resolved.spec.kernel)) {
    const auto segments = attention::cuda::PlanSegments(
        resolved.spec,
        Flash(resolved.spec) ? attention::cuda::Path::kFlash : attention::cuda::Path::kMath,
        resolved.cu_seqlens_q, resolved.cu_seqlens_k);
    Require(!segments.empty(), "nothing to launch");
    Require(attention::cuda::MathBlockRows(resolved.spec.heads, resolved.key_tokens) >= 1,
            "a block without rows");
  }
}

}  // namespace
}  // namespace castor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor::fuzz;
  NumberReader in({data, size});
  const uint8_t flags = in.Byte();
  const castor::AttentionRequest request = ReadRequest(in, flags);
  const auto variants = (flags & 1) == 0 ? castor::attention::CpuVariants() : CudaVariants();
  auto resolved = castor::attention::Resolve(request, variants, FindLayer, kMaxSequences);
  if (resolved.ok()) CheckPlan(request, variants, *std::move(resolved));
  return 0;
}
