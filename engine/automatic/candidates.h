// The automatic kernel of attention requests: which kernels may answer one, with their parameters,
// cheapest first. plan.h says when the next one must run.
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
#include "engine/request.h"

namespace castor::attention {

// Query rows per sequence on which the error of an approximation is measured. They are about a
// third of the work of the default 100 centroids, which also attend to all keys.
inline constexpr int32_t kAutomaticFidelityRows = 32;

// Whether a kernel approximates vanilla, so that its error can be measured. CAST does not: it is a
// different function.
bool IsApproximate(KernelName kernel);

// How much an approximation loses in proportion to other ones; 0 for exact attention. Inputs differ
// by far more than kernels do, so this says nothing of an error, but orders the candidates, and
// tells from the error of one what to expect of another.
double LossOf(const Kernel& kernel);

// One kernel that may answer.
struct Candidate {
  Kernel kernel;            // with its parameters
  double predicted_us = 0;  // 0: the model does not know
};

// How long the kernel of `spec` takes for sequences with these offsets, in microseconds; nullopt if
// it was not measured.
using PriceOf =
    std::function<std::optional<double>(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                        std::span<const int32_t> cu_seqlens_k)>;

// Where each sequence's rows begin among the first `rows` of each, and their number.
std::vector<int32_t> OffsetsOfRows(std::span<const int32_t> cu_seqlens, int32_t rows);

// The kernels to try in this order, at least one, each more exact than the one before; the last is
// exact if that is allowed. One is tried before the next if it costs at most half of it, the
// estimate of its error included, since its time is lost if its error turns out too large. So all
// approximations together cost no more than the last candidate, whatever their errors are, and a
// request no more than twice that. What should take longer than exact attention is left out.
// Without an error allowance, or without prices, there is the most exact kernel only, with default
// parameters. Among the parameters are options beyond the paper, which not every device has.
//
// `spec` and the offsets describe the request, whatever kernel `spec` holds. Requires that
// `automatic` allows a kernel that `variants` can run.
std::vector<Candidate> CandidatesOf(const Automatic& automatic, const Spec& spec,
                                    std::span<const int32_t> cu_seqlens_q,
                                    std::span<const int32_t> cu_seqlens_k,
                                    std::span<const Variant> variants, const PriceOf& price_of);

}  // namespace castor::attention
