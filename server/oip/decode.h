// Converts ModelInferRequest to the engine's requests, through castor.v1's own messages and checks.
// Tensors stay views into the slices that gRPC received.
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

// How a request wants its answer.
struct RequestedOutputs {
  struct Output {
    std::string name;
    std::optional<OutputRange> range;  // for its elements; unset: in the answer
  };

  const Model* model = nullptr;
  std::vector<Output> outputs;  // in this order; empty: all there are
  bool rerank = false;
  // castor.v1's fields, and the inputs that they were made of.
  std::vector<std::pair<std::string_view, std::string_view>> inputs;
  bool masked = false;  // ids are fewer than in the input

  bool Includes(std::string_view output) const;
};

// `message` points into out->slices, and must live until the engine has the request. Errors are
// those of castor.v1's codec; INVALID_FIELD at inputs, outputs and parameters by their names.
absl::Status DecodeAttend(wire::ModelInferRequest& message, DecodedAttend* out,
                          RequestedOutputs* requested);
absl::Status DecodeEncode(wire::ModelInferRequest& message, DecodedEncode* out,
                          RequestedOutputs* requested);

// An error of the engine, about an encoder's inputs by castor.v1's names, by the names here.
// `submitted`: it came after Submit.
absl::Status RenameFields(const absl::Status& error, bool submitted,
                          const RequestedOutputs& requested);

}  // namespace castor::server::oip
