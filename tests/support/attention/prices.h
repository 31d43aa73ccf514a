// Prices for the automatic kernel to go by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/attention/problem.h"
#include "engine/automatic/candidates.h"

namespace castor::attention {

// The rows that attend to all keys: queries, or centroids in their place. In whole vectors, and
// tiles of equal size.
inline double RowsOf(const Kernel& kernel, double queries) {
  const Clustered* const clustering = ClusteringOf(kernel);
  const double rows =
      clustering == nullptr ? queries : std::min<double>(queries, clustering->clusters);
  const double tiles = std::ceil(rows / 192);
  return tiles * 16 * std::ceil(rows / tiles / 16);
}

// So much for a row and a key, and four times as much with options beyond the paper. The probe of
// an approximation is priced like vanilla, on its few rows.
inline PriceOf Prices(double vanilla, double clustered, double improved) {
  return [=](const Spec& spec, std::span<const int32_t> q,
             std::span<const int32_t> k) -> std::optional<double> {
    double us = NameOf(spec.kernel) == KernelName::kVanilla     ? vanilla
                : NameOf(spec.kernel) == KernelName::kClustered ? clustered
                                                                : improved;
    if (!OptionBeyondThePaper(spec.kernel).empty()) us *= 4;
    double products = 0;
    for (size_t s = 0; s + 1 < q.size(); ++s) {
      products += RowsOf(spec.kernel, q[s + 1] - q[s]) * (k[s + 1] - k[s]);
    }
    return us * products;
  };
}

}  // namespace castor::attention
