// Vanilla attention from its definition, in double precision and plain loops: the twin that every
// fast implementation is compared with. See tensors.h for what a twin is.
#pragma once

#include <vector>

#include "engine/attention/problem.h"

namespace castor::attention {

// The output rows of `problem`, [query_tokens, heads, value_dim], not rounded to the dtype.
// Pointers are to host memory; `problem.output` is not used.
std::vector<double> VanillaReference(const Spec& spec, const Problem& problem);

}  // namespace castor::attention
