// The bytes of one received message, as the slices in which gRPC received them.
//
// The spans and string_views that a decoder returns point into these slices or, for a text that
// straddles slices, into a joined copy kept here. They stay valid as long as the SliceView lives,
// even when it is moved. It also counts what the decoded form takes in memory, and gives that back
// to the budget when it is destroyed. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "server/codec/decode_budget.h"

namespace castor::server {

using ByteSpan = std::span<const std::byte>;

class SliceView {
 public:
  SliceView() = default;

  // Takes references to the slices; `bytes` may be cleared afterwards. The budget must outlive it.
  SliceView(const grpc::ByteBuffer& bytes, DecodeBudget& budget);

  // Moving keeps the array of slices where it is, and with it the bytes of short slices, which lie
  // inside the array itself. A copy would not.
  SliceView(SliceView&&) = default;
  SliceView& operator=(SliceView&&) = default;

  std::span<const grpc::Slice> slices() const { return slices_; }
  int64_t size() const { return size_; }  // bytes

  // One copy of all of `pieces`, kept as long as the slices. Its data is null if the budget has no
  // room for it.
  std::string_view Join(std::span<const ByteSpan> pieces);
  // Room for a text, kept likewise; null if there is none.
  char* Allocate(size_t bytes);

  // Counts memory that the decoded form is about to take; false if the budget has no room for it. A
  // message's first few KiB are not taken from the budget, so small ones always have room; no more
  // messages are decoded at a time than there are threads.
  bool Hold(int64_t bytes);
  // Some of that is free, for more of the same message.
  void Release(int64_t bytes) { held_ -= bytes; }

  DecodeBudget& budget() const { return *budget_; }

 private:
  static constexpr int64_t kUncounted = 16 << 10;

  struct Block {
    std::unique_ptr<char[]> bytes;
    size_t size = 0;
    size_t used = 0;
  };

  std::vector<grpc::Slice> slices_;  // never changes once spans point into it
  std::vector<Block> blocks_;        // of joined copies
  int64_t size_ = 0;
  std::unique_ptr<DecodeBudget, DecodeBudget::Return> budget_;  // with what is taken of it
  int64_t held_ = 0;
};

}  // namespace castor::server
