// Chooses the implementation of exact attention that runs a sequence on a GPU: pure functions over
// the table in choice.cc. They use no tensor library and no CUDA, so tests need no GPU.
//
// Batch invariance rests on this file. A sequence's path is a function of the spec and of that
// sequence's own lengths, never of its neighbours, and every path computes each sequence in an
// order that depends on that sequence alone. Flash and math take windows. Math alone takes biases,
// a softcap, keys that no window hides, queries that do not end where the keys end, and rows that a
// mask leaves without a key:
//   flash       one thread block per (query tile, head, sequence); the tile sizes follow from
//               head_dim and causal; without paged keys nothing splits the keys, and for heads that
//               share them FlashAttention (vanilla_cuda.cc) keeps it so.
//   efficient   the same, with a kernel instance picked by dtype and dims.
//   math        one sequence at a time, in query blocks whose size follows from its own lengths.
//
// Some of a sequence's queries may be computed by themselves, where QueryStep allows the cut: they
// are then in the same tiles or blocks as in the whole sequence, over the same keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/attention/problem.h"

namespace castor::attention::cuda {

// The abilities of the device and its libraries, fixed when the device is opened.
struct Capabilities {
  int compute_capability = 0;  // 90 on Hopper
  int multiprocessors = 0;
};

enum class Path { kFlash, kEfficient, kMath };

// Limits of grids: heads and sequences are grid dimensions y and z of the varlen kernels.
inline constexpr int64_t kMaxGridHeads = 65535;
inline constexpr int64_t kMaxGridSequences = 65535;

// True if LibTorch's fused kernels can take the scale. They scale scores before they compare them,
// including masked ones, which are -infinity. So a scale of 0 turns masked scores into NaN, and a
// huge one turns ordinary scores into infinities. The math path takes any scale.
bool ScaleFits(double scale);

bool FlashFits(const Spec& spec, const Capabilities& device);
bool EfficientFits(const Spec& spec, const Capabilities& device);

// The path on which a row of `base` runs a sequence of these lengths: its own, unless the sequence
// has more keys than the efficient kernel can index, or a query without a key.
Path PathOf(const Spec& spec, Path base, int64_t query_tokens, int64_t key_tokens);

// Neighbouring sequences that one launch computes.
struct Segment {
  Path path;
  int64_t first = 0;  // sequence
  int64_t count = 0;
};

// Cuts a batch into launches, each of one PathOf. `base` is the path of the variant's row. Offsets
// as in Problem.
std::vector<Segment> PlanSegments(const Spec& spec, Path base,
                                  std::span<const int32_t> cu_seqlens_q,
                                  std::span<const int32_t> cu_seqlens_k);

// The step at which a sequence's queries may be cut into problems of their own, so that `base`
// computes the same bytes for every row. Ranges begin at multiples of the step and hold at least as
// many queries. A range of this length fills the device. 0: they may not be cut.
int64_t QueryStep(const Spec& spec, Path base, int64_t query_tokens, int64_t key_tokens,
                  const Capabilities& device);

// The most memory that a row of `base` takes for these sequences, without the tensors and the
// output: Variant::workspace_bytes.
int64_t VanillaWorkspaceBytes(const Spec& spec, Path base, std::span<const int32_t> cu_seqlens_q,
                              std::span<const int32_t> cu_seqlens_k);

// The number of query rows that the math path computes at a time for a sequence of `key_tokens`
// keys: at most kMathMostRows.
inline constexpr int64_t kMathMostRows = 1024;
int64_t MathBlockRows(int64_t heads, int64_t key_tokens);

// Distances behind and ahead of a row within which the math path looks for keys; -1: all keys.
struct MathReach {
  int64_t left;
  int64_t right;
};
MathReach MathWindow(const Spec& spec);

// The most keys that such a block needs: all, or those within the window of its rows.
int64_t MathBlockKeys(const Spec& spec, int64_t key_tokens);

}  // namespace castor::attention::cuda
