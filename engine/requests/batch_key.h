// Which requests may share a batch: those with equal keys.
//
// A key is the bytes of everything that one launch has in common: the operation; for attention all
// of its Spec, biases by their address, so that a request with its own runs alone; for an encoder
// the model, by its number, and the kernel's parameters. Lengths are not part of the key: batches
// are ragged.
#pragma once

#include <cstdint>
#include <string>

#include "engine/attention/problem.h"
#include "engine/request.h"

namespace castor {

std::string BatchKey(const attention::Spec& spec);
std::string BatchKey(uint64_t model, const Kernel& kernel);

}  // namespace castor
