// Converts ModelInferRequest to the engine's requests, through castor.v1's own messages and checks.
//
// Order: inputs by name, requested outputs, parameters, then the checks of castor.v1. Counts of
// elements are checked before the elements are read. Tensors stay views into the slices that gRPC
// received; texts and integers that must be copied count against the slices' DecodeBudget.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/codec/attention_codec.h"
#include "server/codec/encoder_codec.h"
#include "server/oip/catalogue.h"
#include "server/oip/wire.h"

namespace castor::server::oip {

// The part of a request that its answer and its errors need.
struct RequestedOutputs {
  struct Output {
    std::string name;
    std::optional<OutputRange> range;  // for its elements; unset: in the answer
  };

  ModelPtr model = nullptr;
  std::vector<Output> outputs;  // in this order; empty: all
  bool rerank = false;
  // Fields of castor.v1, and the inputs that they were made from.
  std::vector<std::pair<std::string_view, std::string_view>> inputs;
  bool masked = false;  // a mask removed ids, so indices of errors do not match the input

  bool Includes(std::string_view output) const;
};

// `message` points into out->slices, and must live until the engine has the request. Errors are
// those of castor.v1's codec; INVALID_FIELD at inputs, outputs and parameters by their names.
absl::Status DecodeAttend(wire::ModelInferRequest& message, DecodedAttend* out,
                          RequestedOutputs* requested);
absl::Status DecodeEncode(wire::ModelInferRequest& message, DecodedEncode* out,
                          RequestedOutputs* requested);

// The engine's error with the names of the request's inputs in place of castor.v1's fields.
// `submitted`: it came after Submit.
absl::Status RenameFields(const absl::Status& error, bool submitted,
                          const RequestedOutputs& requested);

}  // namespace castor::server::oip
