// Turns a request's parameters into fields of castor.v1's message of the same name. castor.v1
// defines which fields there are and their types, and checks their values.
#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "server/codec/slice_view.h"
#include "server/oip/wire.h"

namespace castor::server::oip {

using Parameters = server::wire::Repeated<wire::ParameterEntry>;

// The value of the last entry with this key, or nullptr.
const wire::InferParameter* FindParameter(const Parameters& parameters, std::string_view key);

// Sets a field from a parameter: a number, also written as text; a bool; a text; the name of an
// enumeration's value. INVALID_FIELD at "parameters.KEY" for what does not fit.
absl::Status SetField(const wire::ParameterEntry& parameter, std::string_view field,
                      google::protobuf::Message* message);

// Sets fields of `message`, a castor.v1.AttendRequest or EncodeRequest without tensors, from all
// parameters. `attention` names the kernel, whose fields take precedence over the message's own.
// Parameters that neither the message nor any kernel has are ignored, except that unknown names
// beginning with triton_ are refused.
absl::Status SetFields(const Parameters& parameters, google::protobuf::Message* message);

}  // namespace castor::server::oip
