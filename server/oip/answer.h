// ModelInferResponse from the engine's results: always raw, one entry for each output, empty where
// the elements are in shared memory.
#pragma once

#include <optional>
#include <string_view>

#include "grpcpp/support/byte_buffer.h"
#include "server/codec/regions.h"
#include "server/oip/decode.h"

namespace castor::server::oip {

grpc::ByteBuffer Answer(const Wanted& wanted, std::string_view id, AttentionResult result,
                        const std::optional<OutputRange>& output);
grpc::ByteBuffer Answer(const Wanted& wanted, std::string_view id, EncodeResult result);

}  // namespace castor::server::oip
