// Which requests may share a batch: those with equal keys.
//
// A key is the bytes of everything that one launch has in common: the operation; for attention the
// dtype, heads, dimensions, scale and the kernel's parameters; for an encoder the model and the
// kernel's parameters. Lengths are not in it: batches are ragged.
#pragma once

#include <string>

#include "engine/attention/problem.h"
#include "engine/encoder/batch.h"
#include "engine/request.h"

namespace castor {

std::string BatchKey(const attention::Spec& spec);
std::string BatchKey(const encoder::Model* model, const Kernel& kernel);

}  // namespace castor
