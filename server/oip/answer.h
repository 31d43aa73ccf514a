// Builds ModelInferResponse from the engine's results. Elements are always raw: one entry for each
// output, empty if the elements were written to shared memory.
//
// Tensors of the result become slices of the answer without a copy, and their memory is freed when
// gRPC has sent it. Other elements (counts, rankings, sparse rows) are copied. EngineRequest
// charges the answer's bytes to the tenant until gRPC has sent them.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/metrics/metrics.h"
#include "server/oip/decode.h"

namespace castor::server::oip {

// Outputs come in the order of the request, or, if it names none, in a fixed order. Errors are
// those of WriteRange, and INVALID_FIELD if the range in shared memory is too small; both name the
// output.
absl::StatusOr<grpc::ByteBuffer> Answer(const RequestedOutputs& requested, std::string_view id,
                                        AttentionResult result, Metrics& metrics);
absl::StatusOr<grpc::ByteBuffer> Answer(const RequestedOutputs& requested, std::string_view id,
                                        EncodeResult result, Metrics& metrics);

// ModelStreamInferResponse with an answer, or with an error. The error's text begins with the
// reason in brackets, since clients see only the text.
grpc::ByteBuffer StreamAnswer(const grpc::ByteBuffer& answer);
grpc::ByteBuffer StreamError(const RequestedOutputs& requested, std::string_view id,
                             const google::rpc::Status& error);

}  // namespace castor::server::oip
