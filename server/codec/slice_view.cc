#include "server/codec/slice_view.h"

#include <algorithm>
#include <cstring>

namespace castor::server {

SliceView::SliceView(const grpc::ByteBuffer& bytes, DecodeBudget& budget) : budget_(&budget) {
  // Dump fails only for a buffer without any message, which then reads as an empty message.
  if (!bytes.Dump(&slices_).ok()) slices_.clear();
  for (const grpc::Slice& slice : slices_) size_ += static_cast<int64_t>(slice.size());
}

std::string_view SliceView::Join(std::span<const ByteSpan> pieces) {
  size_t size = 0;
  for (ByteSpan piece : pieces) size += piece.size();
  char* const begin = Allocate(size);
  if (begin == nullptr) return {};
  char* to = begin;
  for (ByteSpan piece : pieces) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  return {begin, size};
}

// Blocks double in size. The allocator writes behind each block, and holds its lock while the
// kernel clears that page. With a block for each text it would touch every page so, and stop all
// other threads that allocate. The pages of a large block are first touched by the copy.
char* SliceView::Allocate(size_t bytes) {
  if (blocks_.empty() || blocks_.back().size - blocks_.back().used < bytes) {
    const size_t twice = blocks_.empty() ? 0 : 2 * blocks_.back().size;
    const size_t size = std::max(bytes, std::min(twice, static_cast<size_t>(size_)));
    if (!Hold(static_cast<int64_t>(size))) return nullptr;
    blocks_.push_back({std::make_unique_for_overwrite<char[]>(size), size});
  }
  Block& block = blocks_.back();
  block.used += bytes;
  return block.bytes.get() + block.used - bytes;
}

bool SliceView::Hold(int64_t bytes) {
  int64_t& taken = budget_.get_deleter().bytes;
  const int64_t more = std::max<int64_t>(held_ + bytes - kUncounted - taken, 0);
  if (more > 0 && !budget_->TakeBytes(more)) return false;
  taken += more;
  held_ += bytes;
  return true;
}

}  // namespace castor::server
