#include "server/tracing/otlp_writer.h"

#include <bit>
#include <cstring>
#include <utility>

#include "server/version.h"

namespace castor::server {
namespace {

// How a field is encoded.
constexpr uint32_t kVarint = 0;
constexpr uint32_t kFixed64 = 1;
constexpr uint32_t kLength = 2;
constexpr uint32_t kFixed32 = 5;

// Flags of a context: sampled; whether it is remote is known, and that it is not.
constexpr uint32_t kFlags = 0x101;

void PutVarint(uint64_t value, WireBuffer* out) {
  while (value >= 0x80) {
    *out->Grow(1) = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out->Grow(1) = static_cast<char>(value);
}

size_t VarintBytes(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

void PutTag(uint32_t field, uint32_t type, WireBuffer* out) { PutVarint(field << 3 | type, out); }

// Little-endian, as the machine has it.
static_assert(std::endian::native == std::endian::little);

template <typename Value>
void PutFixed(uint32_t field, Value value, WireBuffer* out) {
  char* const bytes = out->Grow(1 + sizeof(value));
  bytes[0] = static_cast<char>(field << 3 | (sizeof(value) == 8 ? kFixed64 : kFixed32));
  std::memcpy(bytes + 1, &value, sizeof(value));
}

void PutNumber(uint32_t field, uint64_t value, WireBuffer* out) {
  PutTag(field, kVarint, out);
  PutVarint(value, out);
}

// The tag and the length of a field of a one-byte tag.
void PutLength(uint32_t field, size_t size, WireBuffer* out) {
  if (size < 0x80) {
    char* const bytes = out->Grow(2);
    bytes[0] = static_cast<char>(field << 3 | kLength);
    bytes[1] = static_cast<char>(size);
  } else {
    PutTag(field, kLength, out);
    PutVarint(size, out);
  }
}

void PutBytes(uint32_t field, std::string_view bytes, WireBuffer* out) {
  PutLength(field, bytes.size(), out);
  out->Append(bytes);
}

// The beginning of a message in `field` that goes on for `more` bytes.
void PutOpen(uint32_t field, std::string_view bytes, size_t more, WireBuffer* out) {
  PutLength(field, bytes.size() + more, out);
  out->Append(bytes);
}

template <typename Id>
void PutId(uint32_t field, const Id& id, WireBuffer* out) {
  char* const bytes = out->Grow(2 + sizeof(Id));
  bytes[0] = static_cast<char>(field << 3 | kLength);
  bytes[1] = sizeof(Id);
  std::memcpy(bytes + 2, id.data(), sizeof(Id));
}

// The beginning of a KeyValue in `field`, up to its AnyValue of `value_bytes`. All fields in it
// have one-byte tags.
void PutKey(uint32_t field, std::string_view key, size_t value_bytes, WireBuffer* out) {
  const size_t key_bytes = 1 + VarintBytes(key.size()) + key.size();
  PutLength(field, key_bytes + 1 + VarintBytes(value_bytes) + value_bytes, out);
  PutBytes(1, key, out);
  PutLength(2, value_bytes, out);
}

void PutText(uint32_t field, std::string_view key, std::string_view text, WireBuffer* out) {
  PutKey(field, key, 1 + VarintBytes(text.size()) + text.size(), out);
  PutBytes(1, text, out);
}

// The fields of Span.
constexpr uint32_t kAttributes = 9;
constexpr uint32_t kLinks = 13;
constexpr uint32_t kStatus = 15;

constexpr uint64_t kErrorCode = 2;
constexpr uint32_t kSpansOfScope = 2;

}  // namespace

void OtlpWriter::Begin(const TraceContext& own, const SpanId& parent, std::string_view name,
                       SpanKind kind, int64_t begun, int64_t ended) {
  span_.Clear();
  PutId(1, own.trace, &span_);
  PutId(2, own.span, &span_);
  if (!IsZero(parent)) PutId(4, parent, &span_);
  PutBytes(5, name, &span_);
  PutNumber(6, static_cast<uint64_t>(kind), &span_);
  PutFixed(7, static_cast<uint64_t>(begun), &span_);
  PutFixed(8, static_cast<uint64_t>(ended), &span_);
}

void OtlpWriter::State(std::string_view trace_state) {
  if (!trace_state.empty()) PutBytes(3, trace_state, &span_);
}

void OtlpWriter::Attribute(std::string_view key, std::string_view text) {
  PutText(kAttributes, key, text, &span_);
}

void OtlpWriter::Attribute(std::string_view key, int64_t number) {
  PutKey(kAttributes, key, 1 + VarintBytes(static_cast<uint64_t>(number)), &span_);
  PutNumber(3, static_cast<uint64_t>(number), &span_);
}

void OtlpWriter::Attribute(std::string_view key, double number) {
  PutKey(kAttributes, key, 1 + sizeof(number), &span_);
  PutFixed(4, std::bit_cast<uint64_t>(number), &span_);
}

void OtlpWriter::Link(const TraceContext& to) {
  constexpr size_t kLinkBytes = (2 + sizeof(TraceId)) + (2 + sizeof(SpanId)) + (1 + sizeof(kFlags));
  PutLength(kLinks, kLinkBytes, &span_);
  PutId(1, to.trace, &span_);
  PutId(2, to.span, &span_);
  PutFixed(6, kFlags, &span_);
}

void OtlpWriter::Failed(std::string_view message) {
  WireBuffer status;
  if (!message.empty()) PutBytes(2, message, &status);
  PutNumber(3, kErrorCode, &status);
  PutBytes(kStatus, status.view(), &span_);
}

void OtlpWriter::End() {
  length_.Clear();
  PutLength(kSpansOfScope, span_.view().size(), &length_);
  spans_bytes_.append(length_.view());
  spans_bytes_.append(span_.view());
  ++spans_;
}

OtlpMessage OtlpWriter::Take(const Resource& resource) {
  WireBuffer attributes;
  for (const auto& [key, text] : resource) PutText(1, key, text, &attributes);
  WireBuffer scope;
  PutBytes(1, "castor", &scope);
  PutBytes(2, Version(), &scope);

  // From the inside: each piece ends where the spans, the last field of all, begin.
  OtlpMessage message{.head = {}, .spans = std::exchange(spans_bytes_, {})};
  WireBuffer scope_spans;
  PutBytes(1, scope.view(), &scope_spans);
  WireBuffer resource_spans;
  PutBytes(1, attributes.view(), &resource_spans);
  PutOpen(2, scope_spans.view(), message.spans.size(), &resource_spans);
  WireBuffer head;
  PutOpen(1, resource_spans.view(), message.spans.size(), &head);
  message.head = head.view();
  spans_bytes_.reserve(message.spans.size() + message.spans.size() / 8);
  spans_ = 0;
  return message;
}

}  // namespace castor::server
