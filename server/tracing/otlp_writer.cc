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

void PutVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

size_t VarintBytes(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

void PutTag(uint32_t field, uint32_t type, std::string* out) { PutVarint(field << 3 | type, out); }

// Little-endian, as the machine has it.
static_assert(std::endian::native == std::endian::little);

template <typename Value>
void PutFixed(uint32_t field, Value value, std::string* out) {
  char bytes[1 + sizeof(value)];
  bytes[0] = static_cast<char>(field << 3 | (sizeof(value) == 8 ? kFixed64 : kFixed32));
  std::memcpy(bytes + 1, &value, sizeof(value));
  out->append(bytes, sizeof(bytes));
}

void PutNumber(uint32_t field, uint64_t value, std::string* out) {
  PutTag(field, kVarint, out);
  PutVarint(value, out);
}

// The tag and the length of a field of a one-byte tag.
void PutLength(uint32_t field, size_t size, std::string* out) {
  if (size < 0x80) {
    const char bytes[] = {static_cast<char>(field << 3 | kLength), static_cast<char>(size)};
    out->append(bytes, sizeof(bytes));
  } else {
    PutTag(field, kLength, out);
    PutVarint(size, out);
  }
}

void PutBytes(uint32_t field, std::string_view bytes, std::string* out) {
  PutLength(field, bytes.size(), out);
  out->append(bytes);
}

// The beginning of a message in `field` that goes on for `more` bytes.
void PutOpen(uint32_t field, std::string_view bytes, size_t more, std::string* out) {
  PutLength(field, bytes.size() + more, out);
  out->append(bytes);
}

template <typename Id>
void PutId(uint32_t field, const Id& id, std::string* out) {
  char bytes[2 + sizeof(Id)] = {static_cast<char>(field << 3 | kLength), sizeof(Id)};
  std::memcpy(bytes + 2, id.data(), sizeof(Id));
  out->append(bytes, sizeof(bytes));
}

// The beginning of a KeyValue in `field`, up to its AnyValue of `value_bytes`. All fields in it
// have one-byte tags.
void PutKey(uint32_t field, std::string_view key, size_t value_bytes, std::string* out) {
  const size_t key_bytes = 1 + VarintBytes(key.size()) + key.size();
  PutLength(field, key_bytes + 1 + VarintBytes(value_bytes) + value_bytes, out);
  PutBytes(1, key, out);
  PutLength(2, value_bytes, out);
}

void PutText(uint32_t field, std::string_view key, std::string_view text, std::string* out) {
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
  span_.clear();
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
  std::string link;
  PutId(1, to.trace, &link);
  PutId(2, to.span, &link);
  PutFixed(6, kFlags, &link);
  PutBytes(kLinks, link, &span_);
}

void OtlpWriter::Failed(std::string_view message) {
  std::string status;
  if (!message.empty()) PutBytes(2, message, &status);
  PutNumber(3, kErrorCode, &status);
  PutBytes(kStatus, status, &span_);
}

void OtlpWriter::End() {
  PutBytes(kSpansOfScope, span_, &spans_bytes_);
  ++spans_;
}

OtlpMessage OtlpWriter::Take(const Resource& resource) {
  std::string attributes;
  for (const auto& [key, text] : resource) PutText(1, key, text, &attributes);
  std::string scope;
  PutBytes(1, "castor", &scope);
  PutBytes(2, Version(), &scope);

  // From the inside: each piece ends where the spans, the last field of all, begin.
  OtlpMessage message{.head = {}, .spans = std::exchange(spans_bytes_, {})};
  std::string scope_spans;
  PutBytes(1, scope, &scope_spans);
  std::string resource_spans;
  PutBytes(1, attributes, &resource_spans);
  PutOpen(2, scope_spans, message.spans.size(), &resource_spans);
  PutOpen(1, resource_spans, message.spans.size(), &message.head);
  spans_bytes_.reserve(message.spans.size() + message.spans.size() / 8);
  spans_ = 0;
  return message;
}

}  // namespace castor::server
