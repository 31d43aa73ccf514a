// Which requests may share a batch: those with equal keys.
//
// A key is the bytes of everything that one launch has in common: the operation; for attention the
// dtype, heads, dimensions, scale, the kernel's parameters and whether the log-sum-exp is wanted;
// for an encoder the model and the kernel's parameters. A model, or the one whose CAST layer is
// named, is represented by its generation. Lengths are not part of the key: batches are ragged.
#pragma once

#include <cstdint>
#include <string>

#include "engine/attention/problem.h"
#include "engine/request.h"

namespace castor {

std::string BatchKey(const attention::Spec& spec);
std::string BatchKey(uint64_t generation, const Kernel& kernel);

}  // namespace castor
