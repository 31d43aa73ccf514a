// The automatic kernel of attention requests: which kernels may answer one, cheapest first, with
// their parameters. ladder.h says when the next one must run.
//
// Pure functions of their arguments; any thread may call them. A choice depends on the request, the
// device's kernels and their prices, which are fixed when the engine starts; never on load, history
// or the batch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "engine/automatic/rungs.h"
#include "engine/request.h"

namespace castor::attention {

// Query rows per sequence on which the error of an approximation is measured. They are about a
// third of the work of the default 100 centroids, which also attend to all keys.
inline constexpr int32_t kAutomaticFidelityRows = 32;

// How long the kernel of `spec` takes for sequences with these offsets, in microseconds; nullopt if
// it was not measured.
using PriceOf =
    std::function<std::optional<double>(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                        std::span<const int32_t> cu_seqlens_k)>;

// The kernels to try in this order, at least one, each more exact than the one before; the last is
// exact if that is allowed. What is tried before what: RungsThatPay, by predicted times, the probe
// of the error included. What should take longer than exact attention is left out. Without an error
// allowance, or without prices, the plan is the most exact kernel only, with default parameters.
//
// `spec` and the offsets describe the request, whatever kernel `spec` holds. Requires that
// `automatic` allows a kernel that `variants` can run.
std::vector<Rung> PlanAutomatic(const Automatic& automatic, const Spec& spec,
                                std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k,
                                std::span<const Variant> variants, const PriceOf& price_of);

}  // namespace castor::attention
