// Reads protobuf's wire format from a SliceView, without copying it: tags, values, and ranges of
// bytes as spans into the slices. It accepts exactly what protobuf's own C++ parser accepts
// (server/codec/message.h reads whole messages with it; tests/fuzz compares the two).
//
// Methods return false on a fault. After that, only FaultIn and error() may be called. Reads stay
// inside the innermost message, and nothing is allocated for bytes that are declared but not there.
// Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/error.h"
#include "server/codec/slice_view.h"

namespace castor::server {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kLength = 2,  // a length, then that many bytes
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

struct Tag {
  uint32_t number;  // >= 1
  WireType type;
};

class WireReader {
 public:
  // How deep messages and groups may nest, as in protobuf.
  static constexpr int kMaxDepth = 100;

  // `slices` must outlive the reader, and keeps joined texts.
  explicit WireReader(SliceView* slices);
  WireReader(const WireReader&) = delete;
  WireReader& operator=(const WireReader&) = delete;

  // Bytes from the message's start to the next byte to read.
  int64_t offset() const { return chunk_end_offset_ - (chunk_end_ - cursor_); }

  // Whether the innermost bound is reached.
  bool AtLimit() const { return offset() == limit_; }

  bool ReadTag(Tag* tag);
  bool ReadVarint(uint64_t* value) { return ReadVarintOfAtMost(10, value); }
  bool ReadFixed64(uint64_t* value);
  bool ReadFixed32(uint32_t* value);

  // After a tag of type kLength: the bytes, one span for each slice they lie in.
  bool ReadBytes(std::vector<ByteSpan>* pieces);
  // The same, in one piece and valid UTF-8.
  bool ReadText(std::string_view* text);

  // After a tag of type kLength: limits reads to those bytes until Widen, which must be called at
  // the limit. `outer` holds the bound that Widen restores.
  bool Narrow(int64_t* outer);
  void Widen(int64_t outer);

  // Around a nested message: counts against kMaxDepth.
  bool Descend();
  void Ascend() { ++depth_left_; }

  // Bounds and memory of repeated fields. Hold and Release are SliceView's.
  const DecodeBudget& budget() const { return slices_->budget(); }
  bool Hold(int64_t bytes) { return slices_->Hold(bytes) || Fail("no room", Reason::kQueueFull); }
  void Release(int64_t bytes) { slices_->Release(bytes); }
  // The slices themselves, and spans into them.
  bool HoldSlices();
  // An element more than `most` is refused.
  bool TooMany(int64_t most);

  // Skips the field that the tag begins.
  bool Skip(Tag tag);

  // Puts a field in front of the fault's path, as the fault is passed up from the inside out.
  void FaultIn(std::string_view field);
  void FaultIn(std::string_view field, size_t index);

  // The fault, once a method has returned false: the field, where it begins, and what is wrong.
  absl::Status error() const;

 private:
  bool Fail(std::string_view what, Reason reason = Reason::kMalformedMessage);
  bool ReadVarintOfAtMost(int max_bytes, uint64_t* value);
  bool ReadByte(uint8_t* byte);
  bool ReadFixed(int64_t bytes, uint8_t* to);
  bool ReadLength(int64_t* length);
  bool SkipBytes(int64_t count);
  bool SkipGroup(uint32_t number);
  ByteSpan TakeSpan(int64_t at_most);  // non-empty unless at the limit
  bool NextChunk();
  void Clip();

  SliceView* const slices_;
  size_t next_slice_ = 0;
  // The rest of the current slice: [cursor_, end_) up to the limit, [cursor_, chunk_end_) in all.
  const uint8_t* cursor_ = nullptr;
  const uint8_t* end_ = nullptr;
  const uint8_t* chunk_end_ = nullptr;
  int64_t chunk_end_offset_ = 0;  // of chunk_end_, from the message's start
  int64_t limit_;                 // the innermost bound, likewise
  int64_t tag_offset_ = 0;        // where the current field begins, likewise
  int depth_left_ = kMaxDepth;
  std::vector<ByteSpan> scratch_;

  Reason fault_reason_ = Reason::kMalformedMessage;
  std::string fault_;  // empty: none yet
  std::string fault_path_;
};

}  // namespace castor::server
