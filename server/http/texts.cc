// The routes on texts: OpenAI's, the rerankers' (Cohere, Jina, vLLM), text-embeddings-inference's and
// Weaviate's. Each handler turns its protocol's fields into one engine request.

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <numeric>

#include "castor/v1/encoder.pb.h"
#include "absl/strings/ascii.h"
#include "engine/base/error.h"
#include "server/http/door.h"
#include "server/tei/models.h"
#include "server/version.h"

namespace castor::server::http {
namespace {

using Texts = std::vector<std::string_view>;

// ---- models and prompts

// What a route needs of a model.
struct Need {
  bool (*has)(const ModelInfo&);
  std::string_view verb;
};
template <EncodeOutput kOutput>
bool HasOutput(const ModelInfo& model) {
  return tei::Has(model, kOutput);
}
constexpr Need kEmbeds{HasOutput<EncodeOutput::kPooled>, "embed"};
constexpr Need kTokenRows{HasOutput<EncodeOutput::kTokenEmbeddings>, "give token embeddings"};
constexpr Need kSparseRows{HasOutput<EncodeOutput::kSparse>, "give sparse embeddings"};
constexpr Need kClassifies{tei::Classifies, "classify"};
constexpr Need kReranks{CanRerank, "rerank"};
constexpr Need kAny{[](const ModelInfo&) { return true; }, "encode"};

struct Chosen {
  const ModelInfo* model = nullptr;
  std::string_view role = {};  // "query" or "passage", by the end of the name asked for
};

// By the body's `model`, the header castor-model or the path; else the only one that can.
absl::StatusOr<Chosen> Choose(const Door& door, const Asked& asked, ObjectReader& fields,
                              const Need& need) {
  std::optional<std::string> name = asked.model;
  if (const auto text = fields.Text("model"); !name.has_value() && text.has_value()) name = *text;
  if (!fields.status().ok()) return fields.status();
  Chosen chosen;
  if (!name.has_value()) {
    int able = 0;
    for (const ModelInfo& model : door.models) {
      if (!model.alias_of.empty() || !need.has(model)) continue;
      ++able;
      chosen.model = &model;
    }
    if (able == 1) return chosen;
    return MakeError(Reason::kModelNotFound,
                     able == 0 ? "no loaded model can " + std::string(need.verb)
                               : "several loaded models can " + std::string(need.verb) +
                                     ": choose one by the field `model`, the header castor-model "
                                     "or the path /models/NAME/...");
  }
  const auto find = [&](std::string_view wanted) {
    const auto found = std::ranges::find(door.models, wanted, &ModelInfo::name);
    chosen.model = found == door.models.end() ? nullptr : &*found;
    return chosen.model != nullptr;
  };
  if (!find(*name)) {
    for (const std::string_view role : {"query", "passage"}) {
      const std::string end = "-" + std::string(role);
      if (!name->ends_with(end)) continue;
      chosen.role = role;
      find(std::string_view(*name).substr(0, name->size() - end.size()));
    }
  }
  if (chosen.model == nullptr) {
    return MakeError(Reason::kModelNotFound,
                     "no model is named \"" + *name + "\"; /v1/models lists the loaded ones");
  }
  if (need.has(*chosen.model)) return chosen;
  return InvalidField("model",
                      "\"" + chosen.model->name + "\" cannot " + std::string(need.verb));
}

// The model's prompt for a role that a protocol names in its own words, such as "search_query" or
// "RETRIEVAL_DOCUMENT"; nothing where the model has no prompts.
std::optional<std::string> PromptFor(const ModelInfo& model, std::string_view role) {
  const auto& prompts = model.prompts.all;
  const auto has = [&](std::string_view name) {
    return std::ranges::count(prompts, name, &Prompt::name) > 0;
  };
  if (prompts.empty() || role.empty()) return std::nullopt;
  if (has(role)) return std::string(role);
  const std::string lower = absl::AsciiStrToLower(std::string(role));
  const auto says = [&](std::string_view word) { return lower.find(word) != lower.npos; };
  if (says("query")) return has("query") ? "query" : "";
  if (!says("passage") && !says("document")) return std::nullopt;
  for (const char* name : {"passage", "document", "corpus"}) {
    if (has(name)) return name;
  }
  return "";
}

// ---- requests

// The fields that several protocols have.
void ReadOptions(ObjectReader& fields, const Chosen& chosen, EncodeRequest* out) {
  out->model = chosen.model->name;
  if (const auto name = fields.Text("prompt_name")) out->prompt_name = *name;
  std::string_view role = chosen.role;
  for (const char* field : {"input_type", "task_type"}) {
    if (const auto text = fields.Text(field)) role = *text;
  }
  if (!out->prompt_name.has_value()) out->prompt_name = PromptFor(*chosen.model, role);
  if (const Value* truncate = fields.Find("truncate"); truncate && truncate->IsString()) {
    const std::string side = absl::AsciiStrToUpper(std::string(*fields.Text("truncate")));
    out->truncate = side != "NONE";
    if (side == "START") out->truncation_side = Side::kLeft;
    if (side == "END") out->truncation_side = Side::kRight;
  } else if (const auto cut = fields.Bool("truncate")) {
    out->truncate = *cut;
  }
  for (const char* field : {"truncation_direction", "truncation_side"}) {
    if (const auto side = fields.Text(field)) {
      const std::string lower = absl::AsciiStrToLower(std::string(*side));
      if (lower != "left" && lower != "right") fields.Fail(field, "must be left or right");
      out->truncation_side = lower == "left" ? Side::kLeft : Side::kRight;
    }
  }
  if (const auto most = fields.Integer("truncate_prompt_tokens"); most.value_or(-1) > 0) {
    out->max_tokens = *most;
  }
  out->normalize = fields.Bool("normalize");
  if (const auto dimensions = fields.Integer("dimensions")) {
    if (*dimensions < 1) fields.Fail("dimensions", "must be at least 1");
    out->dimensions = *dimensions;
  }
}

// The texts or, where the operator allows them, the token ids of one or several sequences.
absl::Status ReadInput(const Door& door, ObjectReader& fields, std::string_view name,
                       EncodeRequest* out) {
  const Value* const input = fields.Find(name);
  if (input == nullptr) {
    return fields.status().ok() ? InvalidField(name, "missing: give a text or a list of texts")
                                : fields.status();
  }
  const Value* const first = input->IsArray() && !input->Empty() ? &(*input)[0] : input;
  if (!first->IsInt64() && !first->IsArray()) {
    if (const auto texts = fields.Texts(name)) out->input = TextInput{*texts, {}};
    return fields.status();
  }
  if (!door.token_ids) {
    return InvalidField(name,
                        "token ids are of another vocabulary: send texts (LangChain: set "
                        "check_embedding_ctx_length=False), or start the server with "
                        "--http-token-ids");
  }
  TokenInput tokens;
  const auto add = [&](const Value& ids) {
    for (const Value& id : ids.GetArray()) {
      if (!id.IsInt64()) fields.Fail(name, "must be all token ids or all texts");
      if (fields.status().ok()) tokens.ids.push_back(id.GetInt64());
    }
    tokens.lengths.push_back(ids.Size());
  };
  if (first->IsArray()) {
    for (const Value& ids : input->GetArray()) {
      if (!ids.IsArray()) return InvalidField(name, "must be all token ids or all texts");
      add(ids);
    }
  } else if (input->IsArray()) {
    add(*input);
  } else {
    return InvalidField(name, "must be a text, or a list");
  }
  out->input = std::move(tokens);
  return fields.status();
}

// Common to handlers: the object's fields, the model and the options.
struct Reading {
  Reading(const Door& door, Asked& asked, const Need& need)
      : fields(asked.body.root()), chosen(Choose(door, asked, fields, need)) {
    if (chosen.ok()) ReadOptions(fields, *chosen, &request());
  }
  EncodeRequest& request() { return work.decoded.request; }
  const ModelInfo& model() const { return *chosen->model; }
  absl::Status status() const { return chosen.ok() ? fields.status() : chosen.status(); }

  ObjectReader fields;
  TextsWork work{.names = {.texts = "input", .query = ""}};
  absl::StatusOr<Chosen> chosen;
};

// ---- results

using Result = std::shared_ptr<EncodeResult>;

int64_t TokensOf(const EncodeResult& result) {
  return std::accumulate(result.token_counts.begin(), result.token_counts.end(), int64_t{0});
}

Json UsageOf(const EncodeResult& result) {
  const int64_t tokens = TokensOf(result);
  return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
}

std::span<const float> Row(const TensorResult& tensor, size_t i) {
  const auto width = static_cast<size_t>(tensor.shape.back());
  return {tensor.data.as<float>() + i * width, width};
}
size_t RowsOf(const TensorResult& tensor) { return static_cast<size_t>(tensor.shape.front()); }

// The members of an object without its braces.
std::string Members(const Json& object) {
  const std::string text = Dump(object);
  return text.substr(1, text.size() - 2);
}

// OpenAI's envelope around a list.
ListAnswer DataList(const EncodeResult& result, std::string_view id = "") {
  ListAnswer list;
  list.head = id.empty() ? R"({"object":"list","data":[)"
                         : R"({"id":")" + std::string(id) + R"(","object":"list","created":)" +
                               std::to_string(std::time(nullptr)) + R"(,"data":[)";
  list.tail = "]," + Members({{"model", result.model}, {"usage", UsageOf(result)}}) + "}";
  return list;
}

// Rows of vectors, as bare arrays.
Answer BareRows(Result result) {
  ListAnswer list{.head = "[", .tail = "]"};
  list.rows = RowsOf(result->output);
  list.row = [result](size_t i, std::string* out) { AppendFloats(Row(result->output, i), out); };
  return AnswerOf(std::move(list));
}

// Rows of tokens, in a list for each sequence, after `before` each and followed by `after`.
ListAnswer TokenRows(Result result, std::function<std::string(size_t)> before, std::string after) {
  ListAnswer list;
  list.rows = RowsOf(result->output);
  list.row = [result, before, after, sequence = size_t{0}, left = int64_t{0}](
                 size_t i, std::string* out) mutable {
    if (left == 0) {
      left = result->lengths[sequence];
      out->append(before(sequence++)).push_back('[');
    }
    AppendFloats(Row(result->output, i), out);
    if (--left == 0) out->append("]").append(after);
  };
  return list;
}

std::vector<float> Column(const TensorResult& tensor) {
  const auto* const values = tensor.data.as<float>();
  return {values, values + tensor.data.size() / sizeof(float)};
}

// The classes of a sequence with their scores, the best first.
Json Classes(const EncodeResult& result, size_t i) {
  const auto scores = Row(result.output, i);
  Json classes = Json::array();
  for (const int32_t at : RankByLogit(scores)) {
    classes.push_back({{"score", scores[at]}, {"label", result.labels[at]}});
  }
  return classes;
}

// Cosines between the first row and the others.
std::vector<float> CosinesToFirst(const EncodeResult& result) {
  const auto dot = [](std::span<const float> a, std::span<const float> b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  std::vector<float> cosines;
  const auto first = Row(result.output, 0);
  for (size_t i = 1; i < RowsOf(result.output); ++i) {
    const auto row = Row(result.output, i);
    const double norms = std::sqrt(dot(first, first) * dot(row, row));
    cosines.push_back(static_cast<float>(norms > 0 ? dot(first, row) / norms : 0));
  }
  return cosines;
}

// ---- OpenAI

absl::StatusOr<Work> Embeddings(const Door& door, Asked& asked) {
  Reading read(door, asked, kEmbeds);
  const auto format = read.fields.Text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    read.fields.Fail("encoding_format", "must be float or base64");
  }
  if (absl::Status s = read.status(); !s.ok()) return s;
  if (absl::Status s = ReadInput(door, read.fields, "input", &read.request()); !s.ok()) return s;
  read.request().output = EncodeOutput::kPooled;
  read.work.write = [base64 = format == "base64"](Result result) {
    ListAnswer list = DataList(*result);
    list.rows = RowsOf(result->output);
    list.row = [result, base64](size_t i, std::string* out) {
      out->append(R"({"object":"embedding","index":)").append(std::to_string(i));
      out->append(R"(,"embedding":)");
      (base64 ? AppendBase64 : AppendFloats)(Row(result->output, i), out);
      out->push_back('}');
    };
    return AnswerOf(std::move(list));
  };
  return std::move(read.work);
}

Json Describe(const Door& door, const ModelInfo& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", door.started},
          {"owned_by", "castor"},
          {"max_model_len", model.max_tokens}};
}

absl::StatusOr<Work> ListModels(const Door& door, Asked&) {
  Json data = Json::array();
  for (const ModelInfo& model : door.models) data.push_back(Describe(door, model));
  return JsonAnswer({{"object", "list"}, {"data", data}});
}

absl::StatusOr<Work> GetModel(const Door& door, Asked& asked) {
  for (const ModelInfo& model : door.models) {
    if (model.name == asked.wildcard) return JsonAnswer(Describe(door, model));
  }
  return MakeError(Reason::kModelNotFound,
                   "no model is named \"" + std::string(asked.wildcard) + "\"");
}

// ---- rerankers

// The request's shape decides the answer's: `texts` is TEI's, `documents` is Cohere's, Jina's and
// vLLM's, with Weaviate's scores where there is `property`.
absl::StatusOr<Work> Rerank(const Door& door, Asked& asked) {
  Reading read(door, asked, kReranks);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const bool tei = read.fields.Find("texts") != nullptr;
  const std::string_view name = tei ? "texts" : "documents";
  const auto query = read.fields.Text("query");
  auto documents = read.fields.Texts(name);
  if (!query.has_value()) read.fields.Fail("query", "missing: give a text");
  if (!documents.has_value()) read.fields.Fail(name, "missing: give a list of texts");
  const int64_t top_n = read.fields.Integer("top_n").value_or(0);
  if (top_n < 0) read.fields.Fail("top_n", "must be at least 0");
  const bool property = read.fields.Find("property") != nullptr;
  const bool raw = read.fields.Bool("raw_scores").value_or(false);
  const bool texts =
      property || read.fields.Bool(tei ? "return_text" : "return_documents").value_or(false);
  if (absl::Status s = read.status(); !s.ok()) return s;
  wire::RerankRequest from;
  from.model = read.model().name;
  from.query = *query;
  from.documents = *std::move(documents);
  from.return_documents = texts;
  EncodeRequest options = std::move(read.request());
  DecodedRerank& decoded = read.work.decoded = {};
  if (absl::Status s = ConvertRerankRequest(std::move(from), door.models, &decoded); !s.ok()) {
    return s;
  }
  decoded.request.truncate = options.truncate;
  decoded.request.truncation_side = options.truncation_side;
  decoded.request.max_tokens = options.max_tokens;
  const bool late = decoded.ranking.late_interaction;
  if (!late) decoded.request.prompt_name = std::move(options.prompt_name);
  read.work.names = {.texts = name, .query = "query"};
  read.work.write = [tei, raw, property, late, top_n, query = std::string(*query)](Result result) {
    const auto [logits, scores] = ScoresOf(*result);
    std::vector<int32_t> order = RankByLogit(logits);
    if (top_n > 0 && static_cast<size_t>(top_n) < order.size()) order.resize(top_n);
    const auto text = [&](int32_t i) { return std::string(result->texts[i + (late ? 1 : 0)]); };
    Json rows = Json::array();
    for (const int32_t i : order) {
      Json& row = rows.emplace_back(Json::object());
      row["index"] = i;
      if (tei) {
        row["score"] = (raw ? logits : scores)[i];
        if (!result->texts.empty()) row["text"] = text(i);
        continue;
      }
      row["relevance_score"] = scores[i];
      if (!result->texts.empty()) row["document"] = {{"text", text(i)}};
    }
    if (tei) return JsonAnswer(rows);
    const int64_t tokens = TokensOf(*result);
    Json json = {{"id", "rerank"},
                 {"model", result->model},
                 {"results", std::move(rows)},
                 {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}},
                 {"meta", {{"api_version", {{"version", "2"}}},
                           {"billed_units", {{"search_units", 1}, {"input_tokens", tokens}}},
                           {"tokens", {{"input_tokens", tokens}}}}}};
    if (property) {
      json["query"] = query;
      json["scores"] = Json::array();
      for (size_t i = 0; i < scores.size(); ++i) {
        json["scores"].push_back(
            {{"document", text(static_cast<int32_t>(i))}, {"score", scores[i]}});
      }
    }
    return JsonAnswer(json);
  };
  return std::move(read.work);
}

// ---- vLLM

// One text for each other one, or one for all. Cross-encoders score pairs; other models are compared
// by the cosine of their vectors.
absl::StatusOr<Work> Score(const Door& door, Asked& asked) {
  constexpr Need kScores{
      [](const ModelInfo& model) { return ScoresPairs(model) || kEmbeds.has(model); }, "score"};
  Reading read(door, asked, kScores);
  auto first = read.fields.Texts("text_1"), second = read.fields.Texts("text_2");
  if (!first.has_value() || first->empty()) read.fields.Fail("text_1", "missing");
  if (!second.has_value() || second->empty()) read.fields.Fail("text_2", "missing");
  if (absl::Status s = read.status(); !s.ok()) return s;
  if (first->size() != 1 && first->size() != second->size()) {
    return InvalidField("text_1", "must be one text, or as many as text_2 has");
  }
  const bool pairs = ScoresPairs(read.model());
  if (!pairs && first->size() != 1) {
    return InvalidField("text_1", "must be one text for a model that compares vectors");
  }
  EncodeRequest& request = read.request();
  if (pairs) {
    first->resize(second->size(), first->front());
    request.output = EncodeOutput::kScores;
    request.input = TextInput{.texts = *std::move(first), .pairs = *std::move(second)};
  } else {
    second->insert(second->begin(), first->front());
    request.output = EncodeOutput::kPooled;
    request.input = TextInput{*std::move(second), {}};
  }
  read.work.names = {.texts = "text_2", .query = ""};
  read.work.write = [pairs](Result result) {
    ListAnswer list = DataList(*result, "score");
    const auto scores = std::make_shared<std::vector<float>>(pairs ? Column(result->output)
                                                                   : CosinesToFirst(*result));
    list.rows = scores->size();
    list.row = [scores](size_t i, std::string* out) {
      out->append(Dump({{"index", i}, {"object", "score"}, {"score", (*scores)[i]}}));
    };
    return AnswerOf(std::move(list));
  };
  return std::move(read.work);
}

absl::StatusOr<Work> Classify(const Door& door, Asked& asked) {
  Reading read(door, asked, kClassifies);
  if (absl::Status s = read.status(); !s.ok()) return s;
  if (absl::Status s = ReadInput(door, read.fields, "input", &read.request()); !s.ok()) return s;
  read.request().output = EncodeOutput::kScores;
  read.work.write = [](Result result) {
    ListAnswer list = DataList(*result, "classify");
    list.rows = RowsOf(result->output);
    list.row = [result](size_t i, std::string* out) {
      const auto probabilities = Row(result->output, i);
      const auto best = static_cast<size_t>(RankByLogit(probabilities).front());
      out->append("{" + Members({{"index", i}, {"label", result->labels[best]}}) + ",\"probs\":");
      AppendFloats(probabilities, out);
      out->append(",\"num_classes\":" + std::to_string(probabilities.size()) + "}");
    };
    return AnswerOf(std::move(list));
  };
  return std::move(read.work);
}

absl::StatusOr<Work> Pooling(const Door& door, Asked& asked) {
  Reading read(door, asked, kTokenRows);
  if (absl::Status s = read.status(); !s.ok()) return s;
  if (absl::Status s = ReadInput(door, read.fields, "input", &read.request()); !s.ok()) return s;
  read.request().output = EncodeOutput::kTokenEmbeddings;
  read.work.write = [](Result result) {
    const auto before = [](size_t i) {
      return R"({"index":)" + std::to_string(i) + R"(,"object":"pooling","data":)";
    };
    ListAnswer list = TokenRows(result, before, "}"), envelope = DataList(*result, "pool");
    list.head = std::move(envelope.head);
    list.tail = std::move(envelope.tail);
    return AnswerOf(std::move(list));
  };
  return std::move(read.work);
}

// ---- text-embeddings-inference

// Vectors or rows of `output` of the texts in `inputs`, written by `write`.
template <EncodeOutput kOutput>
absl::StatusOr<Work> TeiRows(const Door& door, Asked& asked, const Need& need,
                             Answer (*write)(Result)) {
  Reading read(door, asked, need);
  if (absl::Status s = read.status(); !s.ok()) return s;
  if (absl::Status s = ReadInput(door, read.fields, "inputs", &read.request()); !s.ok()) return s;
  read.work.names.texts = "inputs";
  read.request().output = kOutput;
  if (kOutput == EncodeOutput::kTokenEmbeddings) read.request().normalize = false;
  read.work.write = write;
  return std::move(read.work);
}

absl::StatusOr<Work> TeiEmbed(const Door& door, Asked& asked) {
  auto work = TeiRows<EncodeOutput::kPooled>(door, asked, kEmbeds, BareRows);
  if (work.ok()) {
    auto& normalize = std::get<TextsWork>(*work).decoded.request.normalize;
    normalize = normalize.value_or(true);
  }
  return work;
}

absl::StatusOr<Work> TeiEmbedAll(const Door& door, Asked& asked) {
  return TeiRows<EncodeOutput::kTokenEmbeddings>(door, asked, kTokenRows, [](Result result) {
    ListAnswer list = TokenRows(std::move(result), [](size_t) { return ""; }, "");
    list.head = "[";
    list.tail = "]";
    return AnswerOf(std::move(list));
  });
}

absl::StatusOr<Work> TeiEmbedSparse(const Door& door, Asked& asked) {
  return TeiRows<EncodeOutput::kSparse>(door, asked, kSparseRows, [](Result result) {
    ListAnswer list{.head = "[", .tail = "]"};
    list.rows = result->sparse->lengths.size();
    list.row = [result, at = size_t{0}](size_t i, std::string* out) mutable {
      Json row = Json::array();
      for (int64_t left = result->sparse->lengths[i]; left > 0; --left, ++at) {
        row.push_back(
            {{"index", result->sparse->indices[at]}, {"value", result->sparse->values[at]}});
      }
      out->append(Dump(row));
    };
    return AnswerOf(std::move(list));
  });
}

// One text, one pair, or a list of either as lists.
absl::StatusOr<Work> TeiPredict(const Door& door, Asked& asked) {
  Reading read(door, asked, kClassifies);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const bool raw = read.fields.Bool("raw_scores").value_or(false);
  const Value* const inputs = read.fields.Find("inputs");
  const bool batch = inputs && inputs->IsArray() && !inputs->Empty() && (*inputs)[0].IsArray();
  Texts texts, pairs;
  const auto add = [&](const Texts& one, const std::string& field) {
    if (one.empty() || one.size() > 2) read.fields.Fail(field, "must have one or two texts");
    if (!read.fields.status().ok()) return;
    texts.push_back(one[0]);
    if (one.size() == 2) pairs.push_back(one[1]);
    if (!pairs.empty() && pairs.size() != texts.size()) {
      read.fields.Fail(field, "must be a pair, as those before it");
    }
  };
  for (rapidjson::SizeType i = 0; batch && i < inputs->Size() && read.fields.status().ok(); ++i) {
    Texts one;
    const Value& texts_of_one = (*inputs)[i];
    for (rapidjson::SizeType k = 0; texts_of_one.IsArray() && k < texts_of_one.Size(); ++k) {
      const Value& text = texts_of_one[k];
      if (text.IsString()) one.emplace_back(text.GetString(), text.GetStringLength());
    }
    add(one, FieldAt("inputs", i));
  }
  if (!batch) add(read.fields.Texts("inputs").value_or(Texts()), "inputs");
  if (absl::Status s = read.status(); !s.ok()) return s;
  read.request().output = raw ? EncodeOutput::kLogits : EncodeOutput::kScores;
  read.request().input = TextInput{.texts = std::move(texts), .pairs = std::move(pairs)};
  read.work.names.texts = "inputs";
  read.work.write = [batch](Result result) {
    if (!batch) return JsonAnswer(Classes(*result, 0));
    ListAnswer list{.head = "[", .tail = "]"};
    list.rows = RowsOf(result->output);
    list.row = [result](size_t i, std::string* out) { out->append(Dump(Classes(*result, i))); };
    return AnswerOf(std::move(list));
  };
  return std::move(read.work);
}

absl::StatusOr<Work> TeiSimilarity(const Door& door, Asked& asked) {
  Reading read(door, asked, kEmbeds);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const Value* const inputs = read.fields.Find("inputs");
  if (inputs == nullptr) return InvalidField("inputs", "missing");
  ObjectReader inner(*inputs);
  const auto source = inner.Text("source_sentence");
  auto sentences = inner.Texts("sentences");
  if (!source.has_value()) inner.Fail("inputs.source_sentence", "missing: give a text");
  if (!sentences || sentences->empty()) inner.Fail("inputs.sentences", "missing: give texts");
  if (!inner.status().ok()) return inner.status();
  sentences->insert(sentences->begin(), *source);
  read.request().output = EncodeOutput::kPooled;
  read.request().input = TextInput{*std::move(sentences), {}};
  read.work.names.texts = "inputs.sentences";
  read.work.write = [](Result result) {
    Answer answer;
    AppendFloats(CosinesToFirst(*result), &answer.body);
    return answer;
  };
  return std::move(read.work);
}

absl::StatusOr<Work> TeiTokenize(const Door& door, Asked& asked) {
  Reading read(door, asked, kAny);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const bool special = read.fields.Bool("add_special_tokens").value_or(true);
  if (absl::Status s = ReadInput(door, read.fields, "inputs", &read.request()); !s.ok()) return s;
  read.request().instead = TokenizeOnly{.add_special_tokens = special, .return_tokens = true};
  read.request().truncate = false;
  read.work.names.texts = "inputs";
  read.work.write = [](Result result) {
    ListAnswer list{.head = "[[", .tail = "]]"};
    list.rows = result->tokenized->ids.size();
    list.row = [result, sequence = size_t{0}, left = int64_t{-1}](size_t i,
                                                                  std::string* out) mutable {
      const Tokenized& from = *result->tokenized;
      if (left < 0) left = from.lengths[0];
      while (left == 0) {
        left = from.lengths[++sequence];
        out->back() = ']';
        out->append(",[");
      }
      --left;
      const Json start = from.special[i] ? Json() : Json(from.characters[i].begin);
      const Json stop = from.special[i] ? Json() : Json(from.characters[i].end);
      out->append(Dump({{"id", from.ids[i]},
                        {"text", from.tokens[i]},
                        {"special", bool{from.special[i]}},
                        {"start", start},
                        {"stop", stop}}));
    };
    return AnswerOf(std::move(list));
  };
  return std::move(read.work);
}

absl::StatusOr<Work> TeiDecode(const Door& door, Asked& asked) {
  Reading read(door, asked, kAny);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const bool skip = read.fields.Bool("skip_special_tokens").value_or(true);
  const Value* const ids = read.fields.Find("ids");
  TokenInput tokens;
  if (ids == nullptr || !ids->IsArray() || ids->Empty()) {
    return InvalidField("ids", "missing: give a list of token ids, or a list of such lists");
  }
  const bool several = (*ids)[0].IsArray();
  for (rapidjson::SizeType i = 0; several && i < ids->Size(); ++i) {
    if (!(*ids)[i].IsArray()) return InvalidField(FieldAt("ids", i), "must be a list");
    for (const Value& id : (*ids)[i].GetArray()) {
      if (!id.IsInt64()) return InvalidField(FieldAt("ids", i), "must be integers");
      tokens.ids.push_back(id.GetInt64());
    }
    tokens.lengths.push_back((*ids)[i].Size());
  }
  if (!several) tokens.ids = read.fields.Integers("ids").value_or(std::vector<int64_t>());
  if (absl::Status s = read.status(); !s.ok()) return s;
  read.request().instead = DetokenizeOnly{.skip_special_tokens = skip};
  read.request().input = std::move(tokens);
  read.work.write = [](Result result) { return JsonAnswer(result->tokenized->texts); };
  return std::move(read.work);
}

absl::StatusOr<Work> TeiInfo(const Door& door, Asked& asked) {
  const EngineOptions& options = door.services.engine.options();
  const Value none(rapidjson::kObjectType);
  ObjectReader fields(none);
  auto chosen = Choose(door, asked, fields, kAny);
  if (!chosen.ok()) {
    return JsonAnswer({{"version", std::string(Version())}, {"model_id", nullptr},
                       {"max_client_batch_size", options.max_sequences}});
  }
  const ModelInfo& model = *chosen->model;
  Json type;
  if (tei::Classifies(model)) {
    type[ScoresPairs(model) ? "reranker" : "classifier"] = {{"labels", model.labels.size()}};
  } else {
    type["embedding"] = {{"pooling", "mean"}};
  }
  return JsonAnswer({{"model_id", model.name},
                     {"model_sha", nullptr},
                     {"model_dtype", model.dtype == DType::kBFloat16 ? "bfloat16" : "float32"},
                     {"model_type", type},
                     {"max_concurrent_requests", options.max_queued_requests},
                     {"max_input_length", model.max_tokens},
                     {"max_batch_tokens", options.max_batch_tokens},
                     {"max_batch_requests", options.max_batch_requests},
                     {"max_client_batch_size", options.max_sequences},
                     {"auto_truncate", true},
                     {"version", std::string(Version())}});
}

absl::StatusOr<Work> Health(const Door& door, Asked&) {
  Answer answer{.content_type = "text/plain"};
  if (!door.ready()) answer.status = 503;
  return answer;
}

// ---- Weaviate

absl::StatusOr<Work> WeaviateVectors(const Door& door, Asked& asked) {
  Reading read(door, asked, kEmbeds);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const bool several = read.fields.Find("texts") != nullptr;
  const std::string_view name = several ? "texts" : "text";
  if (const Value* config = read.fields.Find("config"); config && config->IsObject()) {
    ObjectReader inner(*config);
    if (const auto role = inner.Text("task_type")) {
      read.request().prompt_name = PromptFor(read.model(), *role);
    }
    if (const auto dimensions = inner.Integer("dimensions"); dimensions.value_or(0) > 0) {
      read.request().dimensions = *dimensions;
    }
    if (!inner.status().ok()) return inner.status();
  }
  if (absl::Status s = ReadInput(door, read.fields, name, &read.request()); !s.ok()) return s;
  read.request().output = EncodeOutput::kPooled;
  read.work.names.texts = name;
  Json text;
  if (!several) text = std::string(read.fields.Text(name).value_or(""));
  read.work.write = [several, text](Result result) {
    const int64_t dims = result->output.shape.back();
    ListAnswer list;
    list.head = several ? R"({"vectors":[)" : "{" + Members({{"text", text}}) + R"(,"vector":)";
    list.tail = (several ? "]," : ",") + Members({{"dims", dims}}) + "}";
    list.rows = RowsOf(result->output);
    list.row = [result](size_t i, std::string* out) { AppendFloats(Row(result->output, i), out); };
    return AnswerOf(std::move(list));
  };
  return std::move(read.work);
}

absl::StatusOr<Work> WeaviateMeta(const Door& door, Asked&) {
  Json models = Json::array();
  for (const ModelInfo& model : door.models) models.push_back(model.name);
  return JsonAnswer({{"models", models}});
}

constexpr char kInput[] = R"({"input": ["a text", "another"], "model": "NAME"})";
constexpr char kDocuments[] =
    R"({"query": "a text", "documents": ["one", "another"], "top_n": 1, "model": "NAME"})";
constexpr char kPairs[] = R"({"text_1": "a text", "text_2": ["one", "another"], "model": "NAME"})";
constexpr char kInputs[] = R"({"inputs": ["a text", "another"]})";

constexpr auto kTextRoutes = std::to_array<Route>({
    {"POST", "/v1/embeddings", kMayEncode, ErrorForm::kOpenAi, Embeddings, "OpenAI: embeddings",
     R"({"input": ["a text"], "model": "NAME", "encoding_format": "float", "dimensions": 384})"},
    {"POST", "/embeddings", kMayEncode, ErrorForm::kOpenAi, Embeddings, "The same", kInput},
    {"GET", "/v1/models", kMayListModels, ErrorForm::kOpenAi, ListModels, "OpenAI: the loaded models"},
    {"GET", "/v1/models/*", kMayListModels, ErrorForm::kOpenAi, GetModel, "OpenAI: one model"},
    {"POST", "/v1/rerank", kMayRerank, ErrorForm::kOpenAi, Rerank, "Jina, vLLM: rerank", kDocuments},
    {"POST", "/v2/rerank", kMayRerank, ErrorForm::kOpenAi, Rerank, "Cohere: rerank", kDocuments},
    {"POST", "/rerank", kMayRerank, ErrorForm::kTei, Rerank,
     "TEI (texts), vLLM (documents), Weaviate (property): rerank",
     R"({"query": "a text", "texts": ["one", "another"], "return_text": true})"},
    {"POST", "/v1/score", kMayRerank, ErrorForm::kOpenAi, Score, "vLLM: scores of pairs", kPairs},
    {"POST", "/score", kMayRerank, ErrorForm::kOpenAi, Score, "The same", kPairs},
    {"POST", "/v1/classify", kMayEncode, ErrorForm::kOpenAi, Classify, "vLLM: classify", kInput},
    {"POST", "/classify", kMayEncode, ErrorForm::kOpenAi, Classify, "The same", kInput},
    {"POST", "/pooling", kMayEncode, ErrorForm::kOpenAi, Pooling, "vLLM: token embeddings", kInput},
    {"POST", "/embed", kMayEncode, ErrorForm::kTei, TeiEmbed, "TEI: embeddings", kInputs},
    {"POST", "/embed_all", kMayEncode, ErrorForm::kTei, TeiEmbedAll, "TEI: token embeddings", kInputs},
    {"POST", "/embed_sparse", kMayEncode, ErrorForm::kTei, TeiEmbedSparse, "TEI: sparse embeddings",
     kInputs},
    {"POST", "/predict", kMayEncode, ErrorForm::kTei, TeiPredict, "TEI: classify", kInputs},
    {"POST", "/similarity", kMayEncode, ErrorForm::kTei, TeiSimilarity, "TEI: cosines",
     R"({"inputs": {"source_sentence": "a text", "sentences": ["one", "another"]}})"},
    {"POST", "/tokenize", kMayTokenize, ErrorForm::kTei, TeiTokenize, "TEI: tokenize", kInputs},
    {"POST", "/decode", kMayDetokenize, ErrorForm::kTei, TeiDecode, "TEI: token ids to texts",
     R"({"ids": [101, 102]})"},
    {"GET", "/info", kMayListModels, ErrorForm::kTei, TeiInfo, "TEI: the model and the limits"},
    {"GET", "/health", kMayCheck, ErrorForm::kTei, Health, "Whether the server takes requests"},
    {"GET", "/ping", kMayCheck, ErrorForm::kTei, Health, "The same"},
    {"POST", "/vectors", kMayEncode, ErrorForm::kPlain, WeaviateVectors, "Weaviate: embeddings",
     R"({"text": "a text", "config": {"task_type": "query"}})"},
    {"GET", "/meta", kMayListModels, ErrorForm::kPlain, WeaviateMeta, "Weaviate: about the model"},
    {"GET", "/.well-known/ready", kMayCheck, ErrorForm::kPlain, Health, "Weaviate: readiness"},
    {"GET", "/.well-known/live", kMayCheck, ErrorForm::kPlain, Health, "Weaviate: readiness"},
});

}  // namespace

std::span<const Route> TextRoutes() { return kTextRoutes; }

}  // namespace castor::server::http
