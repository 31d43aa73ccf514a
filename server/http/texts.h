// Shared by the routes on texts: how their fields become one engine request, and its rows text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/door.h"
#include "server/services/models.h"

namespace castor::server::http {

// A route's demand on a model. `output` is the first of a model that is made for it.
struct Need {
  bool (*has)(const ModelInfo&);
  EncodeOutput output;
  std::string_view verb;
};
extern const Need kEmbeds, kTokenRows, kSparseRows, kClassifies, kReranks, kAny;

// By the body's `model`, the header castor-model or the path; else --tei-model, if it can; else the
// only one that can, or the only one made for it. `role`: "query" or "passage", by the end of the
// name asked for.
struct Chosen {
  ModelInfoPtr model = nullptr;
  std::string_view role = {};
};
absl::StatusOr<Chosen> Choose(const Door& door, const Asked& asked, ObjectReader& fields,
                              const Need& need);

// The model's prompt for a role that a protocol names in its own words, such as "search_query" or
// "RETRIEVAL_DOCUMENT"; nothing where the model has no prompts.
std::optional<std::string> PromptFor(const ModelInfo& model, std::string_view role);

// A handler's beginning: the body's fields, the model, and the options that several protocols have.
struct Reading {
  Reading(const Door& door, Asked& asked, const Need& need);

  EncodeRequest& request() { return work.decoded.request; }
  const ModelInfo& model() const { return *chosen->model; }
  absl::Status status() const { return chosen.ok() ? fields.status() : chosen.status(); }

  // The texts in the field or, where the operator allows them, the token ids of one or several
  // sequences. Returns status().
  absl::Status ReadInput(std::string_view name);

  const Door& door;
  ObjectReader fields;
  TextsWork work{.names = {.texts = "input", .query = ""}};
  absl::StatusOr<Chosen> chosen;
};

// ---- results

using Result = std::shared_ptr<EncodeResult>;

int64_t TokensOf(const EncodeResult& result);

inline std::span<const float> Row(const TensorResult& tensor, size_t i) {
  const auto width = static_cast<size_t>(tensor.shape.back());
  return {tensor.data.as<float>() + i * width, width};
}
inline size_t RowsOf(const TensorResult& tensor) {
  return static_cast<size_t>(tensor.shape.front());
}

// The members of an object without its braces.
std::string Members(const Json& object);

// Rows of vectors, as bare arrays.
RowWriter VectorRows(Result result);

// A list of lists, one for each sequence: its `write` appends the i-th of all elements. `open` and
// `close` come around each list.
struct NestedAnswer {
  std::string head;
  std::vector<int64_t> lengths;  // of the lists
  std::string (*open)(size_t sequence);
  std::string_view close;
  RowWriter write;
  std::string tail;
};
Answer AnswerOf(NestedAnswer list);

// Cosines between the first row and the others.
std::vector<float> CosinesToFirst(const EncodeResult& result);

}  // namespace castor::server::http
