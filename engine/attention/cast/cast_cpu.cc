// CAST's rows of the CPU's variant table: divides a batch into waves, which do the work.

#include <algorithm>
#include <vector>

#include "engine/attention/cast/cast_layout.h"
#include "engine/attention/cast/cast_wave.h"
#include "engine/attention/parallel.h"
#include "engine/attention/variants.h"
#include "engine/base/aligned.h"
#include "engine/base/error.h"
#include "engine/kernels/cpu/cast/cast.h"

namespace castor::attention {
namespace {

using kernels::CastKernel;

template <const CastKernel& kKernel>
bool Supports(const Spec& spec) {
  return std::holds_alternative<Cast>(spec.kernel) && IsFloating(spec.dtype) &&
         !spec.positional() && !spec.log_sum_exp && spec.softcap == 0 && spec.key_bias_heads == 0 &&
         kKernel.runs_here();
}

// One wave of a batch.
struct Wave {
  CastLayout layout;
  std::vector<CastItem> items;
};

std::vector<Wave> MakeWaves(const Spec& spec, std::span<const Problem> problems) {
  std::vector<Wave> waves;
  for (const Problem& problem : problems) {
    for (int64_t s = 0; s < problem.sequences(); ++s) {
      const int64_t tokens = problem.cu_seqlens_q[s + 1] - problem.cu_seqlens_q[s];
      if (tokens == 0) continue;
      if (waves.empty() || !waves.back().layout.Add(tokens)) {
        waves.push_back({CastLayout(spec), {}});
        waves.back().layout.Add(tokens);
      }
      waves.back().items.push_back({&problem, s, tokens});
    }
  }
  return waves;
}

template <const CastKernel& kKernel>
int64_t LayoutBytes(const Spec& spec, const CastLayout& layout) {
  return layout.bytes(ParallelWorkers(), kKernel.scratch_floats(CastShapeOf(spec))).value();
}

template <const CastKernel& kKernel>
int64_t WorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens,
                       std::span<const int32_t>) {
  if (spec.surrogates <= 0) return 0;  // not yet known
  Problem problem;
  problem.cu_seqlens_q = cu_seqlens;
  int64_t most = 0;
  for (const Wave& wave : MakeWaves(spec, {&problem, 1})) {
    const Count bytes = Count(LayoutBytes<kKernel>(spec, wave.layout)) + wave.layout.list_bytes();
    most = std::max(most, bytes.value());
  }
  return most;
}

template <const CastKernel& kKernel>
absl::Status Run(const Spec& spec, std::span<const Problem> problems, RunControl& control) {
  if (spec.surrogates <= 0) return InvalidField("cast.surrogate_tokens", "must not be empty");
  const std::vector<Wave> waves = MakeWaves(spec, problems);
  int64_t bytes = 0;
  for (const Wave& wave : waves) {
    for (const CastItem& item : wave.items) {
      if (CastLayout::HasRoom(spec, item.tokens)) continue;
      return InvalidField("cast.cluster_size", "single assignment needs a place for every token");
    }
    bytes = std::max(bytes, LayoutBytes<kKernel>(spec, wave.layout));
  }
  const auto memory = AllocateAligned<std::byte>(bytes);
  for (const Wave& wave : waves) {
    CastWave work(kKernel, spec, wave.layout, wave.items, memory.get(), control);
    if (absl::Status status = work.Run(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

template <const CastKernel& kKernel>
constexpr Variant Row(std::string_view backend) {
  return {KernelName::kCast, backend, &Supports<kKernel>, &Run<kKernel>, &WorkspaceBytes<kKernel>};
}

constexpr Variant kRows[] = {
#if defined(__x86_64__)
    Row<kernels::kCastAvx512>("cpu-avx512"),
    Row<kernels::kCastAvx2>("cpu-avx2"),
#endif
    Row<kernels::kCastPortable>("cpu-portable"),
};

}  // namespace

std::span<const Variant> CastCpuVariants() { return kRows; }

}  // namespace castor::attention
