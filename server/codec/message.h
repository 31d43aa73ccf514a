// Declares the fields of a message once, and reads the message as protobuf would.
//
// A message is a plain struct whose `Fields` lists what the .proto says; the type of each member
// says how it is read (messages.h has all of them):
//
//   bool, int32_t (enumerations too), int64_t, uint64_t, float, double    the last value counts
//   std::string_view                  string: the last counts, every one must be UTF-8
//   std::vector<ByteSpan>             bytes: the last counts
//   a message, std::optional<...>     presence; a second message is merged into the first
//   Repeated<T>                       all of them, in order; numbers packed or not. Its Field says
//                                     how many there may be, a number or a bound of DecodeBudget
//   std::variant<std::monostate, ...> oneof: another case replaces the first, the same case merges
//
// Unknown fields are skipped, and so are known ones with another wire type. The memory of repeated
// fields is counted before it is allocated. What a oneof held before its case changed still counts.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/codec/wire_reader.h"

namespace castor::server::wire {

using Text = std::string_view;
using Bytes = std::vector<ByteSpan>;
template <typename T>
using Repeated = std::vector<T>;

template <typename T>
concept Message = requires { typename T::Fields; };

template <Message M>
bool ReadMessage(WireReader& reader, M& message);

// A field's name as a template argument.
template <size_t kSize>
struct Name {
  constexpr Name(const char (&text)[kSize]) { std::copy_n(text, kSize, chars); }
  constexpr std::string_view view() const { return {chars, kSize - 1}; }
  char chars[kSize];
};

// ---- single values -----------------------------------------------------------------------------

template <typename T>
constexpr WireType kWireType = std::integral<T> ? WireType::kVarint : WireType::kLength;
template <>
inline constexpr WireType kWireType<double> = WireType::kFixed64;
template <>
inline constexpr WireType kWireType<float> = WireType::kFixed32;
template <typename T>
constexpr WireType kWireType<std::optional<T>> = kWireType<T>;
template <typename T>
constexpr WireType kWireType<Repeated<T>> = kWireType<T>;

template <std::integral T>
bool ReadValue(WireReader& reader, T& value) {
  uint64_t bits;
  if (!reader.ReadVarint(&bits)) return false;
  value = static_cast<T>(bits);  // bool: whether any bit is set; others keep the low bits
  return true;
}

inline bool ReadValue(WireReader& reader, double& value) {
  uint64_t bits;
  if (!reader.ReadFixed64(&bits)) return false;
  value = std::bit_cast<double>(bits);
  return true;
}

inline bool ReadValue(WireReader& reader, float& value) {
  uint32_t bits;
  if (!reader.ReadFixed32(&bits)) return false;
  value = std::bit_cast<float>(bits);
  return true;
}

inline bool ReadValue(WireReader& reader, Text& text) { return reader.ReadText(&text); }
inline bool ReadValue(WireReader& reader, Bytes& bytes) { return reader.ReadBytes(&bytes); }

template <Message M>
bool ReadValue(WireReader& reader, M& message) {
  int64_t outer;
  if (!reader.Descend() || !reader.Narrow(&outer) || !ReadMessage(reader, message)) return false;
  reader.Widen(outer);
  reader.Ascend();
  return true;
}

template <typename T>
bool ReadValue(WireReader& reader, std::optional<T>& value) {
  if (!value.has_value()) value.emplace();
  return ReadValue(reader, *value);
}

// An element in memory. HoldSlices counts what the arrays of Bytes take beyond two spans.
template <typename T>
constexpr int64_t kElementBytes = sizeof(T) + (std::same_as<T, Bytes> ? 2 * sizeof(ByteSpan) : 0);

template <typename T>
bool AppendValue(WireReader& reader, Repeated<T>& values, int64_t most) {
  const auto size = static_cast<int64_t>(values.size());
  if (size >= most) return reader.TooMany(most);
  if (values.size() == values.capacity()) {  // needs its old room until it has moved into the new
    const int64_t grown = std::min(std::max<int64_t>(2 * size, 4), most);
    if (!reader.Hold(grown * kElementBytes<T>)) return false;
    values.reserve(static_cast<size_t>(grown));
    reader.Release(size * kElementBytes<T>);
  }
  T value{};
  if (!ReadValue(reader, value)) return false;
  values.push_back(std::move(value));
  return true;
}

// ---- fields ------------------------------------------------------------------------------------

template <typename T>
constexpr bool kIsRepeated = false;
template <typename T>
constexpr bool kIsRepeated<Repeated<T>> = !std::same_as<Repeated<T>, Bytes>;

// Whether a tag of this type can hold a value of T. Repeated numbers may be packed.
template <typename T>
constexpr bool Accepts(WireType type) {
  return type == kWireType<T> || (kIsRepeated<T> && type == WireType::kLength);
}

template <typename T>
bool ReadRepeated(WireReader& reader, WireType type, Repeated<T>& field, int64_t most) {
  if (type == kWireType<Repeated<T>>) return AppendValue(reader, field, most);
  int64_t outer;  // packed
  if (!reader.Narrow(&outer)) return false;
  while (!reader.AtLimit()) {
    if (!AppendValue(reader, field, most)) return false;
  }
  reader.Widen(outer);
  return true;
}

inline int64_t MostOf(const DecodeBudget&, int64_t most) { return most; }
inline int64_t MostOf(const DecodeBudget& budget, const int64_t DecodeBudget::*most) {
  return budget.*most;
}

// Field<"dtype", 1, &Tensor::dtype>, and of a repeated field the most elements that it may have:
// Field<"shape", 2, &Tensor::shape, 8>, Field<"ids", 1, &TokenBatch::ids, kTokens>.
template <Name kName, uint32_t kNumber, auto kMember, auto kMost = nullptr>
struct Field;

template <Name kName, uint32_t kNumber, typename M, typename T, T M::*kMember, auto kMost>
struct Field<kName, kNumber, kMember, kMost> {
  static_assert(kIsRepeated<T> != std::same_as<decltype(kMost), std::nullptr_t>);

  static bool Accepts(Tag tag) { return tag.number == kNumber && wire::Accepts<T>(tag.type); }

  static bool Read(WireReader& reader, Tag tag, M& message) {
    T& field = message.*kMember;
    if constexpr (kIsRepeated<T>) {
      const int64_t most = MostOf(reader.budget(), kMost);
      if (ReadRepeated(reader, tag.type, field, most)) return true;
      if (std::ssize(field) == most) {
        reader.FaultIn(kName.view());  // of too many elements none is the wrong one
      } else {
        reader.FaultIn(kName.view(), field.size());
      }
    } else {
      if (ReadValue(reader, field)) return true;
      reader.FaultIn(kName.view());
    }
    return false;
  }

  template <typename Visitor>
  static void Visit(Visitor&& visitor) {
    visitor.template operator()<T>(kName.view(), kNumber);
  }
};

// OneOf<&Tensor::data, Case<"raw", 3>, Case<"shared_memory", 4>>: the cases in the order of the
// variant's alternatives after std::monostate.
template <Name kCaseName, uint32_t kCaseNumber>
struct Case {
  static constexpr auto kName = kCaseName;
  static constexpr uint32_t kNumber = kCaseNumber;
};

template <auto kMember, typename... Cases>
struct OneOf;

template <typename M, typename... Ts, std::variant<std::monostate, Ts...> M::*kMember,
          typename... Cases>
struct OneOf<kMember, Cases...> {
  static_assert(sizeof...(Ts) == sizeof...(Cases));

  static bool Accepts(Tag tag) {
    return ((tag.number == Cases::kNumber && tag.type == kWireType<Ts>) || ...);
  }

  static bool Read(WireReader& reader, Tag tag, M& message) {
    return Read(reader, tag, message.*kMember, std::index_sequence_for<Ts...>());
  }

  template <typename Visitor>
  static void Visit(Visitor&& visitor) {
    (visitor.template operator()<Ts>(Cases::kName.view(), Cases::kNumber), ...);
  }

 private:
  using Variant = std::variant<std::monostate, Ts...>;

  template <size_t... kIndex>
  static bool Read(WireReader& reader, Tag tag, Variant& value, std::index_sequence<kIndex...>) {
    bool good = false;
    ((tag.number == Cases::kNumber ? void(good = ReadCase<kIndex + 1, Cases>(reader, value))
                                   : void()),
     ...);
    return good;
  }

  template <size_t kAlternative, typename Which>
  static bool ReadCase(WireReader& reader, Variant& value) {
    if (value.index() != kAlternative) value.template emplace<kAlternative>();
    if (ReadValue(reader, std::get<kAlternative>(value))) return true;
    reader.FaultIn(Which::kName.view());
    return false;
  }
};

template <typename... Members>
struct FieldList {
  template <typename M>
  static bool Read(WireReader& reader, Tag tag, M& message) {
    bool good = false;
    const bool known =
        ((Members::Accepts(tag) && ((good = Members::Read(reader, tag, message)), true)) || ...);
    return known ? good : reader.Skip(tag);
  }

  // Calls visitor.operator()<T>(name, number) for each field and each case of a oneof.
  template <typename Visitor>
  static void Visit(Visitor&& visitor) {
    (Members::Visit(visitor), ...);
  }
};

// Reads fields up to the end of the innermost message, into what `message` already holds.
template <Message M>
bool ReadMessage(WireReader& reader, M& message) {
  while (!reader.AtLimit()) {
    Tag tag;
    if (!reader.ReadTag(&tag) || !M::Fields::Read(reader, tag, message)) return false;
  }
  return true;
}

// Reads all of `slices` as one message.
template <Message M>
absl::Status Parse(SliceView* slices, M* message) {
  if (slices->size() > std::numeric_limits<int32_t>::max()) {
    return MakeError(Reason::kMalformedMessage, "a message of 2 GiB or more");
  }
  WireReader reader(slices);
  return reader.HoldSlices() && ReadMessage(reader, *message) ? absl::OkStatus() : reader.error();
}

}  // namespace castor::server::wire
