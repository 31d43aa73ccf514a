#include "server/codec/wire_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "google/protobuf/stubs/common.h"

namespace castor::server {

static_assert(std::endian::native == std::endian::little, "fixed-width values are copied as is");

WireReader::WireReader(SliceView* slices) : slices_(slices), limit_(slices->size()) {}

bool WireReader::ReadTag(Tag* tag) {
  tag_offset_ = offset();
  uint64_t value;
  if (!ReadVarintOfAtMost(5, &value)) return false;
  const uint32_t bits = static_cast<uint32_t>(value);  // protobuf drops higher bits, too
  const uint32_t type = bits & 7;
  tag->number = bits >> 3;
  tag->type = static_cast<WireType>(type);
  if (tag->number == 0) return Fail("field number 0");
  if (type > static_cast<uint32_t>(WireType::kFixed32)) return Fail("unknown wire type");
  return true;
}

bool WireReader::ReadVarintOfAtMost(int max_bytes, uint64_t* value) {
  uint64_t result = 0;
  for (int i = 0; i < max_bytes; ++i) {
    uint8_t byte = 0;
    if (!ReadByte(&byte)) return false;
    result |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      *value = result;
      return true;
    }
  }
  return Fail("a varint longer than " + std::to_string(max_bytes) + " bytes");
}

bool WireReader::ReadByte(uint8_t* byte) {
  if (cursor_ == end_ && !NextChunk()) return Fail("the message ends inside a field");
  *byte = *cursor_++;
  return true;
}

bool WireReader::ReadFixed64(uint64_t* value) {
  return ReadFixed(sizeof(*value), reinterpret_cast<uint8_t*>(value));
}

bool WireReader::ReadFixed32(uint32_t* value) {
  return ReadFixed(sizeof(*value), reinterpret_cast<uint8_t*>(value));
}

bool WireReader::ReadFixed(int64_t bytes, uint8_t* to) {
  if (limit_ - offset() < bytes) return Fail("the message ends inside a field");
  for (int64_t missing = bytes; missing > 0;) {
    const ByteSpan piece = TakeSpan(missing);
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
    missing -= static_cast<int64_t>(piece.size());
  }
  return true;
}

bool WireReader::ReadLength(int64_t* length) {
  uint64_t value;
  if (!ReadVarintOfAtMost(5, &value)) return false;
  const int64_t left = limit_ - offset();
  if (static_cast<int64_t>(value) > left) {
    return Fail("a length of " + std::to_string(value) + " where " + std::to_string(left) +
                " bytes are left");
  }
  *length = static_cast<int64_t>(value);
  return true;
}

bool WireReader::ReadBytes(std::vector<ByteSpan>* pieces) {
  pieces->clear();
  int64_t length;
  if (!ReadLength(&length)) return false;
  while (length > 0) {
    pieces->push_back(TakeSpan(length));
    length -= static_cast<int64_t>(pieces->back().size());
  }
  return true;
}

bool WireReader::ReadText(std::string_view* text) {
  if (!ReadBytes(&scratch_)) return false;
  std::string_view joined;
  if (scratch_.size() == 1) {
    joined = {reinterpret_cast<const char*>(scratch_[0].data()), scratch_[0].size()};
  } else if (!scratch_.empty()) {
    joined = slices_->Join(scratch_);
    if (joined.data() == nullptr) return Fail("no room", Reason::kQueueFull);
  }
  // protobuf's own check, so that both accept the same texts.
  if (!google::protobuf::internal::IsStructurallyValidUTF8(joined.data(),
                                                           static_cast<int>(joined.size()))) {
    return Fail("a string that is not valid UTF-8");
  }
  *text = joined;
  return true;
}

bool WireReader::Narrow(int64_t* outer) {
  int64_t length;
  if (!ReadLength(&length)) return false;
  *outer = limit_;
  limit_ = offset() + length;
  Clip();
  return true;
}

void WireReader::Widen(int64_t outer) {
  limit_ = outer;
  Clip();
}

bool WireReader::Descend() {
  if (depth_left_ == 0) return Fail("messages nested too deep");
  --depth_left_;
  return true;
}

// All Bytes together have a span for each slice and some more. Their arrays have room for up to
// twice as many, and are copied into the engine's request.
bool WireReader::HoldSlices() {
  constexpr int64_t kBytes = sizeof(grpc::Slice) + 4 * sizeof(ByteSpan);
  return Hold(std::ssize(slices_->slices()) * kBytes);
}

bool WireReader::TooMany(int64_t most) {
  return Fail("more than " + std::to_string(most) + " elements", Reason::kInvalidField);
}

bool WireReader::Skip(Tag tag) {
  uint64_t value;
  int64_t length;
  switch (tag.type) {
    case WireType::kVarint:
      return ReadVarint(&value);
    case WireType::kFixed64:
      return SkipBytes(8);
    case WireType::kLength:
      return ReadLength(&length) && SkipBytes(length);
    case WireType::kStartGroup:
      return SkipGroup(tag.number);
    case WireType::kEndGroup:
      return Fail("the end of a group that never began");
    case WireType::kFixed32:
      return SkipBytes(4);
  }
  return Fail("unknown wire type");
}

bool WireReader::SkipBytes(int64_t count) {
  if (limit_ - offset() < count) return Fail("the message ends inside a field");
  while (count > 0) count -= static_cast<int64_t>(TakeSpan(count).size());
  return true;
}

// Recursive, no deeper than kMaxDepth.
bool WireReader::SkipGroup(uint32_t number) {
  if (!Descend()) return false;
  while (true) {
    Tag tag;
    if (AtLimit()) return Fail("a group that never ends");
    if (!ReadTag(&tag)) return false;
    if (tag.type == WireType::kEndGroup && tag.number == number) break;
    if (!Skip(tag)) return false;
  }
  Ascend();
  return true;
}

ByteSpan WireReader::TakeSpan(int64_t at_most) {
  if (cursor_ == end_ && !NextChunk()) return {};
  const int64_t size = std::min<int64_t>(at_most, end_ - cursor_);
  const ByteSpan piece(reinterpret_cast<const std::byte*>(cursor_), static_cast<size_t>(size));
  cursor_ += size;
  return piece;
}

// False at the limit; otherwise [cursor_, end_) is not empty afterwards.
bool WireReader::NextChunk() {
  while (cursor_ == end_) {
    if (AtLimit()) return false;
    const grpc::Slice& slice = slices_->slices()[next_slice_++];
    cursor_ = slice.begin();
    chunk_end_ = slice.end();
    chunk_end_offset_ += static_cast<int64_t>(slice.size());
    Clip();
  }
  return true;
}

void WireReader::Clip() { end_ = chunk_end_ - std::max<int64_t>(0, chunk_end_offset_ - limit_); }

bool WireReader::Fail(std::string_view what, Reason reason) {
  fault_reason_ = reason;
  fault_ = "at byte " + std::to_string(tag_offset_) + ": " + std::string(what);
  return false;
}

void WireReader::FaultIn(std::string_view field) {
  std::string path(field);
  if (!fault_path_.empty()) path += "." + fault_path_;
  fault_path_ = std::move(path);
}

void WireReader::FaultIn(std::string_view field, size_t index) { FaultIn(FieldAt(field, index)); }

absl::Status WireReader::error() const {
  if (fault_reason_ == Reason::kQueueFull) return DecodeBudget::Full();
  if (fault_path_.empty()) return MakeError(fault_reason_, fault_);
  return InvalidField(fault_reason_, fault_path_, fault_);
}

}  // namespace castor::server
