// JSON in requests and answers. RapidJSON reads requests in place: texts stay where they arrived.
// nlohmann's library writes small answers; rows of numbers are appended by AppendFloats.
#pragma once

#include <rapidjson/document.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/request.h"
#include "server/codec/slice_view.h"

namespace castor::server::http {

using Value = rapidjson::Value;

// For answers. Its floats are single, so that they are written with as few digits as tell them
// apart.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, int64_t,
                                  uint64_t, float>;
// Bytes that are not UTF-8, as tokens may be, become U+FFFD.
std::string Dump(const Json& json);

// A request's body, parsed. Texts of the values point into it.
class JsonBody {
 public:
  // MALFORMED_MESSAGE says where the body is not JSON. What the values take is counted in `budget`
  // before it is allocated. Call once.
  absl::Status Parse(std::string body, DecodeBudget& budget);

  const Value& root() const { return document_; }
  // Where more of the request's memory is counted.
  SliceView& held() { return held_; }

 private:
  std::string body_;
  SliceView held_;
  rapidjson::Document document_;
};

// Reads the members of an object by name, and keeps the first error, an INVALID_FIELD. A member
// that is null is absent; of several with one name the last counts; unknown ones are ignored.
class ObjectReader {
 public:
  // A list of texts may have `max_texts`.
  explicit ObjectReader(const Value& object, int64_t max_texts = 0);

  const Value* Find(std::string_view name) const;  // null if it is absent
  std::optional<std::string_view> Text(std::string_view name);
  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Integer(std::string_view name);
  std::optional<std::vector<std::string_view>> Texts(std::string_view name);
  std::optional<std::vector<int64_t>> Integers(std::string_view name);
  // A value of this object: one text, or a list of them, each perhaps an object with a `text`.
  std::vector<std::string_view> TextsAt(std::string_view name, const Value& value);
  // Likewise, a list of token ids, or a list of such lists.
  TokenInput TokensAt(std::string_view name, const Value& value);

  void Fail(std::string_view name, std::string_view problem);
  const absl::Status& status() const { return status_; }

 private:
  std::string_view TextAt(std::string_view name, const Value& value);

  const Value& object_;
  const int64_t max_texts_;
  absl::Status status_;
};

// A number with the fewest digits that give the same float again; null if it is not finite.
void AppendFloat(float value, std::string* out);
// A list of them, "[0.1,2]".
void AppendFloats(std::span<const float> values, std::string* out);

// The little-endian bytes in base64, between quotes.
void AppendBase64(std::span<const float> values, std::string* out);

}  // namespace castor::server::http
