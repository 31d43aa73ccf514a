// The bytes of one received message, as the slices in which gRPC received them.
//
// The spans and string_views that a decoder returns point into these slices or, for a text that
// straddles slices, into a joined copy kept here. They stay valid as long as the SliceView lives,
// even when it is moved. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "grpcpp/support/byte_buffer.h"

namespace castor::server {

using ByteSpan = std::span<const std::byte>;

class SliceView {
 public:
  SliceView() = default;

  // Takes references to the slices; `bytes` may be cleared afterwards.
  explicit SliceView(const grpc::ByteBuffer& bytes);

  // Moving keeps the array of slices where it is, and with it the bytes of short slices, which lie
  // inside the array itself. A copy would not.
  SliceView(SliceView&&) = default;
  SliceView& operator=(SliceView&&) = default;

  std::span<const grpc::Slice> slices() const { return slices_; }
  int64_t size() const { return size_; }  // bytes

  // One copy of all of `pieces`, kept as long as the slices.
  std::string_view Join(std::span<const ByteSpan> pieces);
  // Room for a text, kept likewise.
  char* Allocate(size_t bytes);

 private:
  struct Block {
    std::unique_ptr<char[]> bytes;
    size_t size = 0;
    size_t used = 0;
  };

  std::vector<grpc::Slice> slices_;  // never changes once spans point into it
  std::vector<Block> blocks_;        // of joined copies
  int64_t size_ = 0;
};

}  // namespace castor::server
