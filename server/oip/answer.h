// ModelInferResponse from the engine's results: always raw, one entry for each output, empty where
// the elements are in shared memory, to which they are written here.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/metrics/metrics.h"
#include "server/oip/decode.h"

namespace castor::server::oip {

// Errors are those of WriteRange at the output's name, and INVALID_FIELD there if its range is too
// small.
absl::StatusOr<grpc::ByteBuffer> Answer(const RequestedOutputs& requested, std::string_view id,
                                        AttentionResult result, Metrics& metrics);
absl::StatusOr<grpc::ByteBuffer> Answer(const RequestedOutputs& requested, std::string_view id,
                                        EncodeResult result, Metrics& metrics);

// ModelStreamInferResponse with an answer, and one with an error, whose text begins with the reason
// in brackets, since it is all that clients are shown.
grpc::ByteBuffer StreamAnswer(const grpc::ByteBuffer& answer);
grpc::ByteBuffer StreamError(const RequestedOutputs& requested, std::string_view id,
                             const google::rpc::Status& error);

}  // namespace castor::server::oip
