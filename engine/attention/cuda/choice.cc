#include "engine/attention/cuda/choice.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "engine/kernels/count.h"

namespace castor::attention::cuda {
namespace {

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// A multiple of both sides, queries and keys, of FlashAttention's and CUTLASS's tiles. A range that
// begins and ends at multiples of it is cut between tiles, and under a causal mask its last tile
// sees the same keys as before.
constexpr int64_t kTile = 128;

// Blocks of those kernels that a multiprocessor holds, by their registers.
constexpr int64_t kBlocksEach = 2;

// The efficient kernel multiplies a key's number by the row's length in 32 bits. Rows are padded to
// 16 bytes a head.
bool EfficientIndexes(const Spec& spec, int64_t key_tokens) {
  constexpr int64_t kMostPadding = 7;
  const int64_t dim = std::max(spec.head_dim, spec.value_dim) + kMostPadding;
  return Count(spec.heads) * dim * key_tokens <= INT32_MAX;
}

// True if LibTorch's fused kernels can do everything that the spec asks of scores.
bool FusedKnow(const Spec& spec) {
  return !spec.bias.any() && !spec.log_sum_exp && spec.softcap == 0 && spec.key_bias_heads == 0 &&
         !spec.placed && spec.window.always_visible == 0 && ScaleFits(spec.softmax_scale);
}

// True if a mask leaves the first queries of a sequence without a key.
bool LeavesRowsEmpty(const Spec& spec, int64_t query_tokens, int64_t key_tokens) {
  return query_tokens > key_tokens && (IsCausal(spec) || spec.window.any());
}

// The math path's memory for a sequence: keys and values in float32, which products may copy once
// more, and a block of scores, of their exponentials and of its rows.
Count MathBytes(const Spec& spec, int64_t queries, int64_t keys) {
  constexpr int64_t kFloat = sizeof(float);
  const Count heads = spec.heads;
  const Count dims = Count(spec.head_dim) + spec.value_dim;
  const int64_t seen = MathBlockKeys(spec, keys);
  const Count rows = std::min(queries, MathBlockRows(spec.heads, seen));
  // Masks and biases by distance are made for a block of scores: their indices, which are int64, in
  // three tensors at most, and a bias of each head.
  constexpr int64_t kIndices = 3 * sizeof(int64_t);
  const Count places = spec.positional() ? (kIndices + 1) * Count(seen) : Count(0);
  const Count biases = spec.bias.any() ? 2 * heads * seen * kFloat : Count(0);
  const Count shared = spec.group() == 1 ? Count(0) : Count(spec.kv_heads);
  return (2 * heads + shared) * keys * dims * kFloat +
         rows * (2 * heads * seen * kFloat + seen + 2 * heads * dims * kFloat + places + biases);
}

// The fused kernels' memory for a sequence: rows with dims that their loads do not fit are copied,
// results included. FlashAttention writes a float per row and head. The efficient kernel writes its
// sums in float32 for half types.
Count FusedBytes(const Spec& spec, Path base, int64_t queries, int64_t keys) {
  constexpr int64_t kVectorBytes = 16;
  const auto element = static_cast<int64_t>(SizeOf(spec.dtype));
  const int64_t unit = kVectorBytes / element;
  const bool flash = base == Path::kFlash;
  const Count widest = Count(std::max(spec.head_dim, spec.value_dim)).RoundedUp(unit);
  const Count head_dim = flash ? widest : Count(spec.head_dim).RoundedUp(unit);
  const Count value_dim = flash ? widest : Count(spec.value_dim).RoundedUp(unit);
  const Count heads = spec.heads;
  Count bytes = 0;
  if (head_dim != spec.head_dim || value_dim != spec.value_dim) {
    bytes += (heads * queries + Count(spec.kv_heads) * keys) * (head_dim + value_dim) * element;
  }
  // FlashAttention alone reads keys and values that heads share.
  if (!flash && spec.group() > 1) bytes += 2 * heads * keys * (head_dim + value_dim) * element;
  if (flash) return bytes + heads * queries * static_cast<int64_t>(sizeof(float));
  if (spec.dtype == DType::kFloat32) return bytes;
  return bytes + heads * queries * value_dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace

bool ScaleFits(double scale) {
  constexpr double kLeast = 0x1p-64;
  constexpr double kMost = 0x1p64;
  return std::abs(scale) >= kLeast && std::abs(scale) <= kMost;
}

bool FlashFits(const Spec& spec, const Capabilities& device) {
  return FusedKnow(spec) && IsHalf(spec.dtype) && device.compute_capability >= 80 &&
         spec.head_dim <= 256 && spec.value_dim <= 256 && spec.heads <= kMaxGridHeads;
}

bool EfficientFits(const Spec& spec, const Capabilities& device) {
  // 65536 is the largest dim that a kernel instance is compiled for; bf16 needs Ampere.
  return FusedKnow(spec) && !spec.window.any() &&
         (spec.dtype == DType::kFloat32 || IsHalf(spec.dtype)) &&
         device.compute_capability >= (spec.dtype == DType::kBFloat16 ? 80 : 50) &&
         device.compute_capability <= 120 && spec.head_dim <= 65536 && spec.value_dim <= 65536 &&
         spec.heads <= kMaxGridHeads;
}

Path PathOf(const Spec& spec, Path base, int64_t query_tokens, int64_t key_tokens) {
  if (base == Path::kEfficient && !EfficientIndexes(spec, key_tokens)) return Path::kMath;
  return LeavesRowsEmpty(spec, query_tokens, key_tokens) ? Path::kMath : base;
}

std::vector<Segment> PlanSegments(const Spec& spec, Path base,
                                  std::span<const int32_t> cu_seqlens_q,
                                  std::span<const int32_t> cu_seqlens_k) {
  std::vector<Segment> segments;
  const int64_t sequences = static_cast<int64_t>(cu_seqlens_q.size()) - 1;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t query_tokens = cu_seqlens_q[s + 1] - cu_seqlens_q[s];
    const int64_t key_tokens = cu_seqlens_k[s + 1] - cu_seqlens_k[s];
    const Path path = PathOf(spec, base, query_tokens, key_tokens);
    const bool together = path == Path::kFlash || path == Path::kEfficient;
    if (together && !segments.empty() && segments.back().path == path &&
        segments.back().count < kMaxGridSequences) {
      ++segments.back().count;
    } else {
      segments.push_back({path, s, 1});
    }
  }
  return segments;
}

int64_t QueryStep(const Spec& spec, Path base, int64_t query_tokens, int64_t key_tokens,
                  const Capabilities& device) {
  if (!std::holds_alternative<Vanilla>(spec.kernel) || spec.positional() || spec.placed) return 0;
  switch (PathOf(spec, base, query_tokens, key_tokens)) {
    case Path::kMath:
      // Its products span all keys, hidden ones too. Over many heads its blocks differ in length.
      return IsCausal(spec) || spec.heads > kMaxGridHeads ? 0
                                                          : MathBlockRows(spec.heads, key_tokens);
    case Path::kFlash:
    case Path::kEfficient:
      break;
  }
  // A block walks along all keys however few blocks there are: ranges that leave multiprocessors
  // idle would end no sooner.
  const int64_t blocks = kBlocksEach * device.multiprocessors;
  return kTile * std::max<int64_t>(1, (blocks + spec.heads - 1) / spec.heads);
}

int64_t VanillaWorkspaceBytes(const Spec& spec, Path base, std::span<const int32_t> cu_seqlens_q,
                              std::span<const int32_t> cu_seqlens_k) {
  Count fused = 0;
  Count math = 0;  // of one sequence: they come one after another
  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    const int64_t queries = cu_seqlens_q[s + 1] - cu_seqlens_q[s];
    const int64_t keys = cu_seqlens_k[s + 1] - cu_seqlens_k[s];
    if (PathOf(spec, base, queries, keys) == Path::kMath) {
      math = std::max(math, MathBytes(spec, queries, keys));
    } else {
      fused += FusedBytes(spec, base, queries, keys);
    }
  }
  return (fused + math).value();
}

MathReach MathWindow(const Spec& spec) {
  const Window& window = spec.window;
  return {window.left, IsCausal(spec) && window.left >= 0 ? 0 : window.right};
}

int64_t MathBlockKeys(const Spec& spec, int64_t key_tokens) {
  const auto [left, right] = MathWindow(spec);
  if (left < 0 || right < 0 || spec.window.always_visible > 0) return key_tokens;
  return std::min(key_tokens, (Count(left) + right + kMathMostRows).value());
}

int64_t MathBlockRows(int64_t heads, int64_t key_tokens) {
  // The fp32 score block, [heads, rows, key_tokens], stays within this budget, or is one row.
  constexpr int64_t kBlockBytes = int64_t{64} << 20;
  const Count row_bytes = Count(heads) * key_tokens * int64_t{sizeof(float)};
  return std::clamp<int64_t>(kBlockBytes / std::max<int64_t>(1, row_bytes.value()), 1,
                             kMathMostRows);
}

}  // namespace castor::attention::cuda
