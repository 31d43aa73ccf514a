// The automatic kernel of attention requests: the kernels that may answer a request, with their
// parameters, cheapest first. plan.h decides when the next one must run.
//
// Pure functions of their arguments; any thread. A choice depends on the request, the device's
// kernels and their prices, which are fixed when the engine starts; never on load, history or the
// batch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "engine/request.h"

namespace castor::attention {

// The query rows per sequence on which the error of an approximation is measured. They take about a
// third of the work of the default 100 centroids, which also attend to all keys.
inline constexpr int32_t kAutomaticFidelityRows = 32;

// Whether a kernel approximates vanilla, so that its error can be measured. CAST does not: it is a
// different function.
bool IsApproximate(KernelName kernel);

// The error of an approximation relative to others; 0 for exact attention. Errors differ by far
// more between inputs than between kernels, so this predicts no error by itself. It orders the
// candidates, and predicts the error of one candidate from that of another.
double LossOf(const Kernel& kernel);

// A kernel that may answer.
struct Candidate {
  Kernel kernel;            // with its parameters
  double predicted_us = 0;  // 0: not known
};

// How long the kernel of `spec` takes for sequences with these offsets, in microseconds; nullopt if
// it was not measured.
using PriceOf =
    std::function<std::optional<double>(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                        std::span<const int32_t> cu_seqlens_k)>;

// The offsets of the first `rows` rows of each sequence, and their total.
std::vector<int32_t> OffsetsOfRows(std::span<const int32_t> cu_seqlens, int32_t rows);

// The kernels to try in this order, at least one, each more exact than the one before; the last is
// exact if that is allowed. A kernel is tried before the next one if it costs at most half as much,
// with the estimate of its error, since its time is lost if its error is too large. So whatever the
// errors are, all approximations together cost no more than the last candidate, and the request no
// more than twice that. Candidates slower than exact attention are left out. Without an error
// allowance, or without prices, the only candidate is the most exact kernel with default
// parameters. The parameters include options beyond the paper, which not every device supports.
//
// `spec` and the offsets describe the request, whatever kernel `spec` holds. Requires that
// `automatic` allows a kernel that `variants` can run.
std::vector<Candidate> CandidatesOf(const Automatic& automatic, const Spec& spec,
                                    std::span<const int32_t> cu_seqlens_q,
                                    std::span<const int32_t> cu_seqlens_k,
                                    std::span<const Variant> variants, const PriceOf& price_of);

}  // namespace castor::attention
