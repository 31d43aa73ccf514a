// The table of attention kernels, in the order of KernelName and of the alternatives of Kernel. All
// code that names, counts or lists kernels reads it: metrics, log fields, the wire's names, the
// automatic choice. Constants; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/request.h"

namespace castor {

enum class KernelKind {
  kExact,          // softmax attention itself
  kApproximation,  // approximates that with a measurable error; the automatic kernel may choose it
  kOther,          // another function, with inputs that only the caller has
};

struct KernelRow {
  KernelName name;
  std::string_view label;  // in metrics, log fields and files; the wire's name in lower case
  KernelKind kind;
};

inline constexpr auto kKernels = std::to_array<KernelRow>({
    {KernelName::kVanilla, "vanilla", KernelKind::kExact},
    {KernelName::kClustered, "clustered", KernelKind::kApproximation},
    {KernelName::kImprovedClustered, "improved_clustered", KernelKind::kApproximation},
    {KernelName::kCast, "cast", KernelKind::kOther},
});
inline constexpr size_t kKernelCount = kKernels.size();

// The kernels that the automatic kernel chooses from, most exact first.
inline constexpr auto kAutomaticKernels = std::to_array<KernelName>(
    {KernelName::kVanilla, KernelName::kImprovedClustered, KernelName::kClustered});

// The kernels that compute or approximate softmax attention, and so need no further input.
inline std::vector<KernelName> SoftmaxKernels() {
  std::vector<KernelName> names;
  for (const KernelRow& row : kKernels) {
    if (row.kind != KernelKind::kOther) names.push_back(row.name);
  }
  return names;
}

constexpr const KernelRow& RowOf(KernelName name) { return kKernels[static_cast<size_t>(name)]; }

// The row with this label, or nullptr.
constexpr const KernelRow* FindKernel(std::string_view label) {
  for (const KernelRow& row : kKernels) {
    if (row.label == label) return &row;
  }
  return nullptr;
}

// The kernel with its default parameters.
inline Kernel DefaultKernel(KernelName name) {
  return [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    using Make = Kernel (*)();
    constexpr Make kMake[] = {+[] { return Kernel(std::in_place_index<kIndex>); }...};
    return kMake[static_cast<size_t>(name)]();
  }(std::make_index_sequence<kKernelCount>());
}

static_assert(kKernelCount + 1 == std::variant_size_v<Kernel>,
              "every alternative of Kernel but Automatic has a row");
static_assert(
    [] {
      size_t chosen = 0;
      for (size_t i = 0; i < kKernelCount; ++i) {
        if (kKernels[i].name != static_cast<KernelName>(i)) return false;
        const bool automatic =
            std::count(kAutomaticKernels.begin(), kAutomaticKernels.end(), kKernels[i].name) == 1;
        if (automatic != (kKernels[i].kind != KernelKind::kOther)) return false;
        chosen += automatic;
      }
      return chosen == kAutomaticKernels.size() &&
             RowOf(kAutomaticKernels.front()).kind == KernelKind::kExact;
    }(),
    "rows are in KernelName's order, and kAutomaticKernels lists all but kOther, exact first");

}  // namespace castor
