// The request decoders against protobuf's own parser, on the same bytes: both refuse them, or both
// read the same message. Shared by unit tests and fuzzers.
#pragma once

#include <bit>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "engine/base/error.h"
#include "google/protobuf/stubs/logging.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/codec/message.h"
#include "server/codec/regions.h"
#include "tests/unit/server/codec/random_wire.h"

namespace castor::server::twin {

// The bytes as a message that arrived in slices of these sizes; the rest forms one more slice.
grpc::ByteBuffer InSlices(std::string_view bytes, std::span<const size_t> sizes);

// The regions "r", of 4,096 bytes at 100 in its file, and "huge", of all that a file can have from
// byte 7 on. Their contents cannot be read. The budget is that of an engine with default options.
DecodeScope Regions();

struct Comparison {
  bool accepted = false;   // by the decoder
  std::string difference;  // empty: both agree, and bytes were not copied
};

// Writes what a wire::Message holds, so that protobuf can read what the decoder read.
class Rewriter {
 public:
  explicit Rewriter(const SliceView& slices) : slices_(slices) {}

  template <wire::Message M>
  std::string Write(const M& message) {
    return Members<typename M::Fields>::Write(*this, message);
  }

  bool copied() const { return copied_; }

 private:
  template <typename Fields>
  struct Members;
  template <typename... Each>
  struct Members<wire::FieldList<Each...>> {
    template <typename M>
    static std::string Write(Rewriter& writer, const M& message) {
      return (Member<Each>::Write(writer, message) + ... + std::string());
    }
  };

  template <typename T>
  struct Member;
  template <wire::Name kName, uint32_t kNumber, auto kMember, auto kMost>
  struct Member<wire::Field<kName, kNumber, kMember, kMost>> {
    template <typename M>
    static std::string Write(Rewriter& writer, const M& message) {
      return writer.WriteField(kNumber, message.*kMember);
    }
  };
  template <auto kMember, typename... Cases>
  struct Member<wire::OneOf<kMember, Cases...>> {
    template <typename M>
    static std::string Write(Rewriter& writer, const M& message) {
      static constexpr uint32_t kNumbers[] = {0, Cases::kNumber...};
      const auto& oneof = message.*kMember;
      return std::visit(
          [&](const auto& value) { return writer.WriteField(kNumbers[oneof.index()], value); },
          oneof);
    }
  };

  std::string WriteField(uint32_t, std::monostate) { return ""; }
  template <std::integral T>
  std::string WriteField(uint32_t number, T value) {
    return FieldTag(number, 0) + Varint(static_cast<uint64_t>(value));
  }
  std::string WriteField(uint32_t number, double value) {
    return FieldTag(number, 1) + Raw(std::as_bytes(std::span(&value, 1)));
  }
  std::string WriteField(uint32_t number, float value) {
    return FieldTag(number, 5) + Raw(std::as_bytes(std::span(&value, 1)));
  }
  std::string WriteField(uint32_t number, wire::Text text) {
    return LengthField(number, std::string(text));
  }
  std::string WriteField(uint32_t number, const wire::Bytes& pieces) {
    std::string bytes;
    for (const ByteSpan piece : pieces) {
      copied_ = copied_ || !Holds(slices_, piece);
      bytes += Raw(piece);
    }
    return LengthField(number, bytes);
  }
  template <wire::Message M>
  std::string WriteField(uint32_t number, const M& message) {
    return LengthField(number, Write(message));
  }
  template <typename T>
  std::string WriteField(uint32_t number, const std::optional<T>& value) {
    return value.has_value() ? WriteField(number, *value) : "";
  }
  template <typename T>
  std::string WriteField(uint32_t number, const wire::Repeated<T>& values) {
    std::string bytes;
    for (const T& value : values) bytes += WriteField(number, value);
    return bytes;
  }

  static std::string Raw(ByteSpan bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static bool Holds(const SliceView& slices, ByteSpan piece);

  const SliceView& slices_;
  bool copied_ = false;
};

// The reader goes no further than to the first element too many.
inline bool HasTooManyElements(const absl::Status& decoded) {
  return std::string_view(decoded.message().data(), decoded.message().size())
      .ends_with(" elements");
}

// Reads `bytes` both ways. `decode` is all of the way to the engine's request: it must refuse as
// malformed what protobuf refuses, and nothing else. It may have other objections, and read no
// further than where a message has too many elements.
template <wire::Message Ours, typename Theirs, typename Decode>
Comparison Compare(std::string_view bytes, std::span<const size_t> slice_sizes, Decode decode) {
  const google::protobuf::LogSilencer quiet;  // about strings that are not UTF-8
  Theirs theirs;
  const bool parsed = theirs.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));

  const absl::Status decoded = decode(InSlices(bytes, slice_sizes));
  if (HasTooManyElements(decoded)) return {};
  if ((!decoded.ok() && ReasonOf(decoded) == Reason::kMalformedMessage) == parsed) {
    return {.accepted = !parsed, .difference = parsed ? "protobuf accepts it" : "protobuf refuses"};
  }
  if (!parsed) return {};

  // The buffer is gone before the result is read: the result must hold what it needs of it.
  SliceView slices(InSlices(bytes, slice_sizes), Regions().budget);
  Ours ours;
  if (absl::Status status = wire::Parse(&slices, &ours); !status.ok()) {
    return {.accepted = false, .difference = std::string(status.message())};
  }
  Rewriter writer(slices);
  Theirs again;
  if (!again.ParseFromString(writer.Write(ours))) return {.difference = "a text is not UTF-8"};
  theirs.DiscardUnknownFields();
  if (again.SerializeAsString() != theirs.SerializeAsString()) {
    return {.difference =
                "ours:\n" + again.DebugString() + "\nprotobuf's:\n" + theirs.DebugString()};
  }
  return {.accepted = true, .difference = writer.copied() ? "bytes were copied" : ""};
}

}  // namespace castor::server::twin
