// The ranges of EngineOptions' integers: one rule for CheckOptions and for programs that check
// earlier, under names of their own. Each bound has been tried: a server starts and serves there.
#pragma once

#include <cstdint>

namespace castor {

struct OptionBounds {
  int64_t low;
  int64_t high;
};

// 1024 take some seconds to start, and 2 GiB of stacks' addresses for each 128.
inline constexpr OptionBounds kCpuThreadsBounds{0, 1024};
inline constexpr OptionBounds kTokenizerThreadsBounds{0, 256};
inline constexpr OptionBounds kCompletionThreadsBounds{1, 256};
inline constexpr OptionBounds kSequencesBounds{1, int64_t{1} << 20};
inline constexpr OptionBounds kFidelityRowsBounds{1, 1024};
inline constexpr OptionBounds kCostModelBudgetMsBounds{0, 60'000};
inline constexpr OptionBounds kBatchDelayUsBounds{0, 60'000'000};  // more is a mistake of units

}  // namespace castor
