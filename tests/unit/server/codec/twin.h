// The slow twin of the request decoders: protobuf's own parser, then a plain conversion of its
// messages, and the comparison of both over the same bytes. Unit tests and fuzzers share it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "grpcpp/support/byte_buffer.h"
#include "server/shared_memory.h"

namespace castor::server::twin {

// The bytes as a message that arrived in slices of these sizes; what is left forms one more.
grpc::ByteBuffer InSlices(std::string_view bytes, std::span<const size_t> sizes);

// A registry of kTwinRegions (twin_convert.h), for decoders; nothing can be read from them.
const SharedMemory& Regions();

struct Comparison {
  bool accepted = false;   // by the fast decoder
  std::string difference;  // empty: both agree, and every view points into the slices
};

// Decodes the bytes both ways.
Comparison CompareAttend(std::string_view bytes, std::span<const size_t> slice_sizes);
Comparison CompareEncode(std::string_view bytes, std::span<const size_t> slice_sizes);

}  // namespace castor::server::twin
