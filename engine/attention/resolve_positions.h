// What a request says of its scores beside the scale: positions, a softcap, biases of keys.
#pragma once

#include "absl/status/status.h"
#include "engine/attention/resolve.h"
#include "engine/attention/shapes.h"
#include "engine/request.h"

namespace castor::attention {

// Checks these fields, and that the kernel of `resolved`, whose offsets are known, honours them.
// Fills in the rest of its spec and the places, and adds the tensors' bytes. The spec's biases do
// not point to the request's tensor yet, and to its slopes where they are. Pure.
absl::Status ResolveScores(const AttentionRequest& request, const Geometry& geometry,
                           Resolved* resolved);

}  // namespace castor::attention
