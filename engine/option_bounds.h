// The ranges of EngineOptions' integers, in the same units. CheckOptions uses them, and programs
// that check earlier, under their own option names. A server was seen to start and serve with each
// bound.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace castor {

struct OptionBounds {
  int64_t low;
  int64_t high;
};

inline constexpr OptionBounds kQueuedRequestsBounds{1, 1 << 24};
inline constexpr OptionBounds kQueuedTokensBounds{1, int64_t{1} << 40};
inline constexpr OptionBounds kQueuedBytesBounds{1 << 20, int64_t{1} << 40};
inline constexpr OptionBounds kDeviceBytesBounds{0, int64_t{1} << 44};
inline constexpr OptionBounds kQueuedTimeBounds{1, 86'400'000};   // ms
inline constexpr OptionBounds kRequestTimeBounds{1, 86'400'000};  // ms
inline constexpr double kMinTenantWeight = 1e-3;
inline constexpr double kMaxTenantWeight = 1e3;
inline constexpr OptionBounds kTenantQuotaBounds{0, int64_t{1} << 40};  // 0: none
inline constexpr OptionBounds kBatchTokensBounds{1, 1 << 30};
inline constexpr OptionBounds kBatchRequestsBounds{1, 65536};
inline constexpr OptionBounds kBatchDelayBounds{0, 60'000'000};  // us; more is a wrong unit
inline constexpr OptionBounds kSequencesBounds{1, int64_t{1} << 20};
inline constexpr OptionBounds kTextBytesBounds{1, int64_t{64} << 20};
inline constexpr OptionBounds kCostModelBudgetBounds{0, 60'000};  // ms
inline constexpr OptionBounds kCachedHostBytesBounds{0, int64_t{1} << 40};
inline constexpr OptionBounds kAnswerCacheBounds{0, int64_t{1} << 40};
// 1024 threads take some seconds to start. Every 128 take 2 GiB of address space for stacks.
inline constexpr OptionBounds kCpuThreadsBounds{0, 1024};
inline constexpr OptionBounds kIdleUnloadBounds{0, int64_t{30} * 86'400'000};  // ms

// Whether a model may be served under this name: parts of letters, digits, `.`, `_` and `-`, joined
// by `/`, of at most 128 characters, and none of them "." or "..".
inline bool IsModelName(std::string_view name) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." ||
        part.find_first_not_of(kLetters) != std::string_view::npos) {
      return false;
    }
    begin = end + 1;
  }
  return name.size() <= 128;
}

}  // namespace castor
