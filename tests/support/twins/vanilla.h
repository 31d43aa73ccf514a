// Vanilla attention from its definition, in double precision and plain loops: the twin that every
// fast implementation is compared with. See tensors.h for what a twin is.
#pragma once

#include <vector>

#include "engine/attention/problem.h"

namespace castor::attention {

// The output rows of `problem`, [query_tokens, heads, value_dim], not rounded to the dtype, and if
// asked for, their log-sum-exp [query_tokens, heads]. Pointers are to host memory; those to outputs
// are not used.
std::vector<double> VanillaReference(const Spec& spec, const Problem& problem,
                                     std::vector<double>* log_sum_exp = nullptr);

}  // namespace castor::attention
