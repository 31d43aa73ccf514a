#include "server/http/json.h"

#include <rapidjson/error/en.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "engine/base/error.h"
#include "google/protobuf/stubs/strutil.h"

namespace castor::server::http {
namespace {

// More than any request has; each lookup of a member looks at all of them.
constexpr rapidjson::SizeType kMaxMembers = 1024;

constexpr size_t kLongestFloat = 15;  // "-1.17549435e-38"

// Writes it at `at`, where there is room for the longest; returns the end.
char* WriteFloat(float value, char* at) {
  if (std::isfinite(value)) return std::to_chars(at, at + kLongestFloat, value).ptr;
  return std::ranges::copy(std::string_view("null"), at).out;
}

}  // namespace

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status JsonBody::Parse(std::string body, DecodeBudget& budget) {
  body_ = std::move(body);
  held_ = SliceView({}, budget);
  // No more values than this, on the parser's stack and, when their list is complete, in the
  // document.
  const auto values = 1 + std::ranges::count_if(body_, [](char c) {
                        return c == ',' || c == ':' || c == '[' || c == '{';
                      });
  if (!held_.Hold(4 * static_cast<int64_t>(sizeof(Value)) * values)) return DecodeBudget::Full();
  if (body_.find('\0') != body_.npos) {  // where the parser would stop
    return MakeError(Reason::kMalformedMessage, "the body is not JSON: it has a NUL byte");
  }
  // Iterative: depth takes no stack. Not with full precision: RapidJSON 1.1.0 then reads beyond a
  // table for a number with hundreds of zeros after its point.
  document_.ParseInsitu<rapidjson::kParseIterativeFlag>(body_.data());
  if (!document_.HasParseError()) {
    if (document_.IsObject()) return absl::OkStatus();
    return MakeError(Reason::kMalformedMessage, "the body must be a JSON object");
  }
  return MakeError(Reason::kMalformedMessage,
                   "the body is not JSON: " +
                       std::string(rapidjson::GetParseError_En(document_.GetParseError())) +
                       " (at byte " + std::to_string(document_.GetErrorOffset()) + ")");
}

ObjectReader::ObjectReader(const Value& object, int64_t max_texts)
    : object_(object), max_texts_(max_texts) {
  if (!object.IsObject()) {
    status_ = MakeError(Reason::kMalformedMessage, "must be an object");
  } else if (object.MemberCount() > kMaxMembers) {
    status_ = MakeError(Reason::kMalformedMessage, "an object has more than 1024 members");
  }
}

const Value* ObjectReader::Find(std::string_view name) const {
  if (!status_.ok()) return nullptr;
  const Value* found = nullptr;
  for (const auto& member : object_.GetObject()) {
    const std::string_view key(member.name.GetString(), member.name.GetStringLength());
    if (key == name) found = &member.value;
  }
  return found == nullptr || found->IsNull() ? nullptr : found;
}

void ObjectReader::Fail(std::string_view name, std::string_view problem) {
  status_.Update(InvalidField(name, problem));
}

std::string_view ObjectReader::TextAt(std::string_view name, const Value& value) {
  const std::string_view text(value.GetString(), value.GetStringLength());
  if (!google::protobuf::internal::IsStructurallyValidUTF8(text.data(),
                                                           static_cast<int>(text.size()))) {
    Fail(name, "is not valid UTF-8");
  }
  return text;
}

std::optional<std::string_view> ObjectReader::Text(std::string_view name) {
  const Value* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->IsString()) return TextAt(name, *value);
  Fail(name, "must be a string");
  return std::nullopt;
}

std::optional<bool> ObjectReader::Bool(std::string_view name) {
  const Value* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->IsBool()) return value->GetBool();
  Fail(name, "must be true or false");
  return std::nullopt;
}

std::optional<int64_t> ObjectReader::Integer(std::string_view name) {
  const Value* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->IsInt64()) return value->GetInt64();
  Fail(name, "must be an integer");
  return std::nullopt;
}

std::optional<std::vector<std::string_view>> ObjectReader::Texts(std::string_view name) {
  const Value* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  return TextsAt(name, *value);
}

std::vector<std::string_view> ObjectReader::TextsAt(std::string_view name, const Value& value) {
  std::vector<std::string_view> texts;
  const auto add = [&](const Value& one, const std::string& field) {
    const Value* text = &one;
    if (one.IsObject() && one.HasMember("text")) text = &one["text"];
    if (!text->IsString()) return Fail(field, "must be a string");
    texts.push_back(TextAt(field, *text));
  };
  if (!value.IsArray()) {
    add(value, std::string(name));
  } else if (value.Empty() || value.Size() > max_texts_) {
    Fail(name, "must have 1 to " + std::to_string(max_texts_) + " texts");
  } else {
    texts.reserve(value.Size());
    for (rapidjson::SizeType i = 0; i < value.Size() && status_.ok(); ++i) {
      add(value[i], FieldAt(name, i));
    }
  }
  return texts;
}

TokenInput ObjectReader::TokensAt(std::string_view name, const Value& value) {
  TokenInput tokens;
  const auto add = [&](const Value& ids) {
    if (!ids.IsArray()) return Fail(name, "must be a list of token ids, or a list of such lists");
    for (const Value& id : ids.GetArray()) {
      if (!id.IsInt64()) return Fail(name, "must be all token ids");
      tokens.ids.push_back(id.GetInt64());
    }
    tokens.lengths.push_back(ids.Size());
  };
  if (!value.IsArray() || value.Empty() || !value[0].IsArray()) {
    add(value);
  } else if (value.Size() > max_texts_) {
    Fail(name, "must have at most " + std::to_string(max_texts_) + " lists");
  } else {
    for (const Value& ids : value.GetArray()) add(ids);
  }
  return tokens;
}

std::optional<std::vector<int64_t>> ObjectReader::Integers(std::string_view name) {
  const Value* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> integers;
  if (!value->IsArray()) Fail(name, "must be a list of integers");
  for (rapidjson::SizeType i = 0; status_.ok() && i < value->Size(); ++i) {
    if (!(*value)[i].IsInt64()) Fail(FieldAt(name, i), "must be an integer");
    if (status_.ok()) integers.push_back((*value)[i].GetInt64());
  }
  return integers;
}

void AppendFloat(float value, std::string* out) {
  char text[kLongestFloat];
  out->append(text, WriteFloat(value, text));
}

void AppendFloats(std::span<const float> values, std::string* out) {
  const size_t begin = out->size();
  out->resize(begin + (kLongestFloat + 1) * values.size() + 2);
  char* at = out->data() + begin;
  *at++ = '[';
  for (const float value : values) {
    at = WriteFloat(value, at);
    *at++ = ',';
  }
  if (!values.empty()) --at;
  *at++ = ']';
  out->resize(static_cast<size_t>(at - out->data()));
}

void AppendBase64(std::span<const float> values, std::string* out) {
  const auto bytes = std::as_bytes(values);
  std::string text;
  absl::Base64Escape({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, &text);
  out->append("\"").append(text).append("\"");
}

}  // namespace castor::server::http
