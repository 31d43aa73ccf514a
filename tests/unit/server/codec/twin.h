// The slow twin of the request decoders: protobuf's own parser, followed by a plain conversion of
// its messages; and the comparison of both on the same bytes. Shared by unit tests and fuzzers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "grpcpp/support/byte_buffer.h"
#include "server/shared_memory.h"

namespace castor::server::twin {

// The bytes as a message that arrived in slices of these sizes; the rest forms one more slice.
grpc::ByteBuffer InSlices(std::string_view bytes, std::span<const size_t> sizes);

// A registry of kTwinRegions (twin_convert.h) for decoders; their contents cannot be read.
TenantRegions Regions();

struct Comparison {
  bool accepted = false;   // by the fast decoder
  std::string difference;  // empty: both agree, and every view points into the slices
};

// Decodes the bytes both ways.
Comparison CompareAttend(std::string_view bytes, std::span<const size_t> slice_sizes);
Comparison CompareEncode(std::string_view bytes, std::span<const size_t> slice_sizes);

}  // namespace castor::server::twin
