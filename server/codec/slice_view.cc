#include "server/codec/slice_view.h"

#include <cstring>

namespace castor::server {

SliceView::SliceView(const grpc::ByteBuffer& bytes) {
  // Dump fails only for a buffer without any message, which then reads as an empty message.
  if (!bytes.Dump(&slices_).ok()) slices_.clear();
  for (const grpc::Slice& slice : slices_) size_ += static_cast<int64_t>(slice.size());
}

std::string_view SliceView::Join(std::span<const ByteSpan> pieces) {
  size_t size = 0;
  for (ByteSpan piece : pieces) size += piece.size();
  char* to = joined_.emplace_back(std::make_unique_for_overwrite<char[]>(size)).get();
  const std::string_view text(to, size);
  for (ByteSpan piece : pieces) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  return text;
}

}  // namespace castor::server
