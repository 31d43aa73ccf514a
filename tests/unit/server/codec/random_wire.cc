#include "tests/unit/server/codec/random_wire.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace castor::server::twin {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

bool Chance(Random& random, int percent) { return Draw(random, 1, 100) <= percent; }

int64_t DrawInteger(Random& random) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kNotable[] = {0, 1, -1, 127, 128, 1 << 14, int64_t{1} << 31, kMin, kMax};
  if (Chance(random, 70)) return Draw(random, 1, 300);
  if (Chance(random, 50)) return kNotable[Draw(random, 0, std::size(kNotable) - 1)];
  return Draw(random, kMin, kMax);
}

std::string DrawText(Random& random) {
  static const std::string kPieces[] = {"a",  "castor ", "\xc3\xa9",         "\xe2\x82\xac",
                                        "\n", "[SEP]",   "\xf0\x9f\xa6\xab", std::string(1, '\0')};
  std::string text;
  const int64_t pieces = Chance(random, 5) ? Draw(random, 60, 90) : Draw(random, 0, 6);
  for (int64_t i = 0; i < pieces; ++i) {
    text += kPieces[Draw(random, 0, std::size(kPieces) - 1)];
  }
  return text;
}

std::string DrawBytes(Random& random, int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

int DrawEnum(Random& random, const EnumDescriptor& type) {
  if (Chance(random, 3)) return static_cast<int>(DrawInteger(random));
  const int64_t first = Chance(random, 95) ? 1 : 0;
  return type.value(static_cast<int>(Draw(random, first, type.value_count() - 1)))->number();
}

// Sets the field, or adds one element to it.
void FillField(Random& random, const FieldDescriptor* field, Message* message) {
  const Reflection* reflection = message->GetReflection();
  const bool repeated = field->is_repeated();
  const int64_t integer = DrawInteger(random);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      repeated ? reflection->AddInt32(message, field, static_cast<int32_t>(integer))
               : reflection->SetInt32(message, field, static_cast<int32_t>(integer));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      repeated ? reflection->AddInt64(message, field, integer)
               : reflection->SetInt64(message, field, integer);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      reflection->SetUInt64(message, field, static_cast<uint64_t>(integer));
      break;
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
      repeated ? reflection->AddFloat(message, field, value)
               : reflection->SetFloat(message, field, value);
      break;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection->SetDouble(message, field, std::bit_cast<double>(random()));
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection->SetBool(message, field, Chance(random, 50));
      break;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int value = DrawEnum(random, *field->enum_type());
      repeated ? reflection->AddEnumValue(message, field, value)
               : reflection->SetEnumValue(message, field, value);
      break;
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string value = field->type() == FieldDescriptor::TYPE_BYTES
                                    ? DrawBytes(random, Draw(random, 0, 80))
                                    : DrawText(random);
      repeated ? reflection->AddString(message, field, value)
               : reflection->SetString(message, field, value);
      break;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      Fill(random, repeated ? reflection->AddMessage(message, field)
                            : reflection->MutableMessage(message, field));
      break;
    default:
      break;  // no such field in the contract; schema_test would report it
  }
}

std::string Serialize(const UnknownFieldSet& fields) {
  std::string bytes;
  fields.SerializeToString(&bytes);
  return bytes;
}

void Shuffle(Random& random, const UnknownFieldSet& fields, UnknownFieldSet* out) {
  std::vector<int> order(fields.field_count());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::shuffle(order, random);
  for (int i : order) {
    const UnknownField& field = fields.field(i);
    UnknownFieldSet inner;
    // Bytes that parse as a message may be one; if they are not, shuffling only gives other bytes.
    if (field.type() == UnknownField::TYPE_LENGTH_DELIMITED && Chance(random, 50) &&
        inner.ParseFromString(field.length_delimited())) {
      UnknownFieldSet shuffled;
      Shuffle(random, inner, &shuffled);
      out->AddLengthDelimited(field.number(), Serialize(shuffled));
    } else {
      out->AddField(field);
    }
  }
}

std::string DrawUnknownField(Random& random, int depth) {
  // Known numbers are likely too: fields of the wrong wire type count as unknown.
  const auto number = static_cast<uint32_t>(Chance(random, 50) ? Draw(random, 1, 20)
                                                               : Draw(random, 1, (1 << 29) - 1));
  switch (Draw(random, 0, depth > 0 ? 4 : 3)) {
    case 0:
      return FieldTag(number + 32, 0) + Varint(random());
    case 1:
      return FieldTag(number + 32, 1) + DrawBytes(random, 8);
    case 2:
      return LengthField(number + 32, DrawBytes(random, Draw(random, 0, 40)));
    case 3:
      return FieldTag(number, 5) + DrawBytes(random, 4);
    default: {
      std::string group = FieldTag(number, 3);
      for (int64_t i = Draw(random, 0, 3); i > 0; --i) group += DrawUnknownField(random, depth - 1);
      return group + FieldTag(number, 4);
    }
  }
}

}  // namespace

int64_t Draw(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

void Fill(Random& random, Message* message) {
  const auto* descriptor = message->GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_repeated()) {
      for (int64_t count = Draw(random, 0, 4); count > 0; --count) {
        FillField(random, field, message);
      }
    } else if (field->real_containing_oneof() == nullptr && Chance(random, 93)) {
      FillField(random, field, message);
    }
  }
  for (int i = 0; i < descriptor->real_oneof_decl_count(); ++i) {
    const auto* oneof = descriptor->oneof_decl(i);
    if (Chance(random, 93)) {
      const auto which = static_cast<int>(Draw(random, 0, oneof->field_count() - 1));
      FillField(random, oneof->field(which), message);
    }
  }
}

std::vector<size_t> DrawSlices(Random& random, size_t size) {
  std::vector<size_t> sizes;
  if (Chance(random, 10)) return sizes;
  const int64_t longest = Chance(random, 50) ? 3 : 60;
  for (size_t total = 0; total < size; total += sizes.back()) {
    sizes.push_back(static_cast<size_t>(Draw(random, 0, longest)));
  }
  return sizes;
}

std::string Reorder(Random& random, const std::string& bytes) {
  UnknownFieldSet fields;
  UnknownFieldSet shuffled;
  if (!fields.ParseFromString(bytes)) return bytes;
  Shuffle(random, fields, &shuffled);
  return Serialize(shuffled);
}

std::string AddUnknownFields(Random& random, const std::string& bytes) {
  UnknownFieldSet fields;
  if (!fields.ParseFromString(bytes)) return bytes;
  std::string out;
  for (int i = 0; i < fields.field_count(); ++i) {
    if (Chance(random, 50)) out += DrawUnknownField(random, 3);
    UnknownFieldSet one;
    one.AddField(fields.field(i));
    out += Serialize(one);
  }
  return out + DrawUnknownField(random, 3);
}

std::string FlipBytes(Random& random, std::string bytes) {
  for (int64_t flips = Draw(random, 1, 4); flips > 0 && !bytes.empty(); --flips) {
    const auto at = static_cast<size_t>(Draw(random, 0, static_cast<int64_t>(bytes.size()) - 1));
    switch (Draw(random, 0, 2)) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, 1);
        break;
      default:
        bytes.insert(at, 1, static_cast<char>(random()));
    }
  }
  return bytes;
}

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string PaddedVarint(uint64_t value, int bytes) {
  std::string out;
  for (int i = 1; i < bytes; ++i, value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value & 0x7f);
}

std::string FieldTag(uint32_t number, int wire_type) {
  return Varint(uint64_t{number} << 3 | static_cast<uint64_t>(wire_type));
}

std::string LengthField(uint32_t number, const std::string& content) {
  return FieldTag(number, 2) + Varint(content.size()) + content;
}

}  // namespace castor::server::twin
