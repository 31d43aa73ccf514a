// The routes of text-embeddings-inference and Weaviate.

#include <array>

#include "absl/strings/ascii.h"
#include "engine/base/error.h"
#include "server/codec/enums.h"
#include "server/http/texts.h"
#include "server/services/services.h"
#include "server/tei/models.h"
#include "server/tei/tei_service.h"
#include "server/version.h"

namespace castor::server::http {
namespace {

// The classes of a sequence with their scores, the best first.
Json Classes(const EncodeResult& result, size_t i) {
  const auto scores = Row(result.output, i);
  Json classes = Json::array();
  for (const int32_t at : RankByLogit(scores)) {
    classes.push_back({{"score", scores[at]}, {"label", result.labels[at]}});
  }
  return classes;
}

// Rows of `output` of the texts in `inputs`, written by `write`.
absl::StatusOr<Work> Rows(const Door& door, Asked& asked, const Need& need,
                          std::optional<bool> normalize, Answer (*write)(Result)) {
  Reading read(door, asked, need);
  if (absl::Status s = read.ReadInput("inputs"); !s.ok()) return s;
  read.work.names.texts = "inputs";
  read.request().output = need.output;
  if (!read.request().normalize.has_value()) read.request().normalize = normalize;
  read.work.write = write;
  return std::move(read.work);
}

absl::StatusOr<Work> Embed(const Door& door, Asked& asked) {
  return Rows(door, asked, kEmbeds, true, [](Result result) {
    const size_t rows = RowsOf(result->output);
    return AnswerOf({"[", rows, VectorRows(std::move(result)), "]"});
  });
}

std::string NoText(size_t) { return ""; }

absl::StatusOr<Work> EmbedAll(const Door& door, Asked& asked) {
  return Rows(door, asked, kTokenRows, false, [](Result result) {
    return AnswerOf({"[", result->lengths, NoText, "", VectorRows(result), "]"});
  });
}

absl::StatusOr<Work> EmbedSparse(const Door& door, Asked& asked) {
  return Rows(door, asked, kSparseRows, std::nullopt, [](Result result) {
    const size_t rows = result->sparse->lengths.size();
    return AnswerOf({"[", rows,
                     [result, at = size_t{0}](size_t i, std::string* out) mutable {
                       Json row = Json::array();
                       for (int64_t left = result->sparse->lengths[i]; left > 0; --left, ++at) {
                         row.push_back({{"index", result->sparse->indices[at]},
                                        {"value", result->sparse->values[at]}});
                       }
                       out->append(Dump(row));
                     },
                     "]"});
  });
}

// One text, one pair, or a list of either as lists.
absl::StatusOr<Work> Predict(const Door& door, Asked& asked) {
  Reading read(door, asked, kClassifies);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const bool raw = read.fields.Bool("raw_scores").value_or(false);
  const Value* const inputs = read.fields.Find("inputs");
  if (inputs == nullptr) return InvalidField("inputs", "missing: give a text");
  const bool batch = inputs->IsArray() && !inputs->Empty() && (*inputs)[0].IsArray();
  std::vector<std::string_view> texts, pairs;
  for (rapidjson::SizeType i = 0; i < (batch ? inputs->Size() : 1); ++i) {
    const std::string field = batch ? FieldAt("inputs", i) : "inputs";
    const auto one = read.fields.TextsAt(field, batch ? (*inputs)[i] : *inputs);
    if (one.empty() || one.size() > 2 || (one.size() == 2) != (pairs.size() == texts.size())) {
      if (i > 0 || one.size() != 1) read.fields.Fail(field, "must have one text, or be a pair");
    }
    if (absl::Status s = read.status(); !s.ok()) return s;
    texts.push_back(one[0]);
    if (one.size() == 2) pairs.push_back(one[1]);
  }
  read.request().output = raw ? EncodeOutput::kLogits : EncodeOutput::kScores;
  read.request().input = TextInput{.texts = std::move(texts), .pairs = std::move(pairs)};
  read.work.names.texts = "inputs";
  read.work.write = [batch](Result result) {
    if (!batch) return JsonAnswer(Classes(*result, 0));
    const auto row = [result](size_t i, std::string* out) {
      out->append(Dump(Classes(*result, i)));
    };
    return AnswerOf({"[", RowsOf(result->output), row, "]"});
  };
  return std::move(read.work);
}

absl::StatusOr<Work> Similarity(const Door& door, Asked& asked) {
  Reading read(door, asked, kEmbeds);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const Value* const inputs = read.fields.Find("inputs");
  if (inputs == nullptr) return InvalidField("inputs", "missing");
  ObjectReader inner(*inputs, door.services.decoding.max_sequences);
  const auto source = inner.Text("source_sentence");
  auto sentences = inner.Texts("sentences");
  if (!source.has_value()) inner.Fail("inputs.source_sentence", "missing: give a text");
  if (!sentences || sentences->empty()) inner.Fail("inputs.sentences", "missing: give texts");
  if (!inner.status().ok()) return inner.status();
  sentences->insert(sentences->begin(), *source);
  read.request().output = EncodeOutput::kPooled;
  read.request().input = TextInput{*std::move(sentences), {}};
  read.work.names = {.texts = "inputs.sentences", .query = "inputs.source_sentence"};
  read.work.decoded.ranking.late_interaction = true;  // in errors: the first text is the query
  read.work.write = [](Result result) {
    Answer answer;
    AppendFloats(CosinesToFirst(*result), &answer.body);
    return answer;
  };
  return std::move(read.work);
}

absl::StatusOr<Work> Tokenize(const Door& door, Asked& asked) {
  Reading read(door, asked, kAny);
  const bool special = read.fields.Bool("add_special_tokens").value_or(true);
  if (absl::Status s = read.ReadInput("inputs"); !s.ok()) return s;
  read.request().instead = TokenizeOnly{.add_special_tokens = special, .return_tokens = true};
  read.request().truncate = false;
  read.work.names.texts = "inputs";
  read.work.write = [](Result result) {
    const auto write = [result](size_t i, std::string* out) {
      const Tokenized& from = *result->tokenized;
      const Json start = from.special[i] ? Json() : Json(from.characters[i].begin);
      const Json stop = from.special[i] ? Json() : Json(from.characters[i].end);
      out->append(Dump({{"id", from.ids[i]},
                        {"text", from.tokens[i]},
                        {"special", bool{from.special[i]}},
                        {"start", start},
                        {"stop", stop}}));
    };
    return AnswerOf({"[", result->tokenized->lengths, NoText, "", write, "]"});
  };
  return std::move(read.work);
}

absl::StatusOr<Work> Decode(const Door& door, Asked& asked) {
  Reading read(door, asked, kAny);
  const bool skip = read.fields.Bool("skip_special_tokens").value_or(true);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const Value* const ids = read.fields.Find("ids");
  if (ids == nullptr) return InvalidField("ids", "missing: give token ids");
  read.request().instead = DetokenizeOnly{.skip_special_tokens = skip};
  read.request().input = read.fields.TokensAt("ids", *ids);
  if (absl::Status s = read.status(); !s.ok()) return s;
  read.work.names.texts = "ids";
  read.work.write = [](Result result) { return JsonAnswer(result->tokenized->texts); };
  return std::move(read.work);
}

absl::StatusOr<Work> Info(const Door& door, Asked& asked) {
  const EngineOptions& options = door.services.engine.options();
  const Value none(rapidjson::kObjectType);
  ObjectReader fields(none, 0);
  auto chosen = Choose(door, asked, fields, kAny);
  if (!chosen.ok()) {
    return JsonAnswer({{"version", std::string(Version())},
                       {"model_id", nullptr},
                       {"max_client_batch_size", options.max_sequences}});
  }
  const ModelInfo& model = *chosen->model;
  ::tei::v1::InfoResponse info;
  tei::Describe(options, model, &info);
  Json type;
  if (tei::Classifies(model)) {
    Json labels = Json::object(), ids = Json::object();
    for (size_t i = 0; i < model.labels.size(); ++i) {
      labels[std::to_string(i)] = model.labels[i];
      ids[model.labels[i]] = i;
    }
    type[ScoresPairs(model) ? "reranker" : "classifier"] = {{"id2label", labels},
                                                            {"label2id", ids}};
  } else {
    const bool sparse = model.outputs.front() == EncodeOutput::kSparse;
    const std::string pooling = v1::Pooling_Name(ToWire(kPoolings, model.pooling));
    type["embedding"] = {{"pooling", sparse ? "splade" : absl::AsciiStrToLower(pooling)}};
  }
  return JsonAnswer({{"model_id", info.model_id()},
                     {"model_sha", nullptr},
                     {"model_dtype", info.model_dtype()},
                     {"model_type", type},
                     {"max_concurrent_requests", info.max_concurrent_requests()},
                     {"max_input_length", info.max_input_length()},
                     {"max_batch_tokens", info.max_batch_tokens()},
                     {"max_batch_requests", info.max_batch_requests()},
                     {"max_client_batch_size", info.max_client_batch_size()},
                     {"auto_truncate", true},
                     {"tokenization_workers", info.tokenization_workers()},
                     {"version", info.version()},
                     {"sha", info.sha()}});
}

absl::StatusOr<Work> Health(const Door& door, Asked&) {
  Answer answer{.content_type = "text/plain"};
  if (!door.ready()) answer.status = 503;
  return answer;
}

// ---- Weaviate

absl::StatusOr<Work> Vectors(const Door& door, Asked& asked) {
  Reading read(door, asked, kEmbeds);
  if (absl::Status s = read.status(); !s.ok()) return s;
  const bool several = read.fields.Find("texts") != nullptr;
  const std::string_view name = several ? "texts" : "text";
  if (const Value* config = read.fields.Find("config"); config && config->IsObject()) {
    ObjectReader inner(*config, 0);
    if (const auto role = inner.Text("task_type")) {
      read.request().prompt_name = PromptFor(read.model(), *role);
    }
    if (const auto dimensions = inner.Integer("dimensions"); dimensions.value_or(0) > 0) {
      read.request().dimensions = *dimensions;
    }
    if (!inner.status().ok()) return inner.status();
  }
  Json text;
  if (several) {
    if (absl::Status s = read.ReadInput(name); !s.ok()) return s;
  } else {
    const auto one = read.fields.Text(name);
    if (!one.has_value()) read.fields.Fail(name, "missing: give a text");
    if (absl::Status s = read.status(); !s.ok()) return s;
    read.request().input = TextInput{{*one}, {}};
    text = std::string(*one);
  }
  read.request().output = EncodeOutput::kPooled;
  read.work.names.texts = name;
  read.work.write = [several, text](Result result) {
    const int64_t dims = result->output.shape.back();
    const std::string text_of_one = Members({{"text", text}});
    const std::string head = several ? R"({"vectors":[)" : "{" + text_of_one + R"(,"vector":)";
    const std::string tail = (several ? "]," : ",") + Members({{"dims", dims}}) + "}";
    return AnswerOf({head, RowsOf(result->output), VectorRows(result), tail});
  };
  return std::move(read.work);
}

absl::StatusOr<Work> Meta(const Door& door, Asked&) {
  Json models = Json::array();
  const auto loaded = door.models();
  for (const ModelInfo& model : *loaded) {
    if (!model.outputs.empty()) models.push_back(model.name);
  }
  return JsonAnswer({{"models", models}});
}

constexpr char kInputs[] = R"({"inputs": ["a text", "another"]})";

constexpr auto kTeiRoutes = std::to_array<Route>({
    {"POST", "/embed", kMayEncode, ErrorForm::kTei, Embed, "TEI: embeddings", kInputs},
    {"POST", "/", kMayEncode, ErrorForm::kTei, Embed, "The same", kInputs},
    {"POST", "/embed_all", kMayEncode, ErrorForm::kTei, EmbedAll, "TEI: token embeddings", kInputs},
    {"POST", "/embed_sparse", kMayEncode, ErrorForm::kTei, EmbedSparse, "TEI: sparse embeddings",
     kInputs},
    {"POST", "/predict", kMayEncode, ErrorForm::kTei, Predict, "TEI: classify", kInputs},
    {"POST", "/similarity", kMayEncode, ErrorForm::kTei, Similarity, "TEI: cosines",
     R"({"inputs": {"source_sentence": "a text", "sentences": ["one", "another"]}})"},
    {"POST", "/tokenize", kMayTokenize, ErrorForm::kTei, Tokenize, "TEI: tokenize", kInputs},
    {"POST", "/decode", kMayDetokenize, ErrorForm::kTei, Decode, "TEI: token ids to texts",
     R"({"ids": [101, 102]})"},
    {"GET", "/info", kMayListModels, ErrorForm::kTei, Info, "TEI: the model and the limits"},
    {"GET", "/health", kMayCheck, ErrorForm::kTei, Health, "Whether the server takes requests"},
    {"POST", "/vectors", kMayEncode, ErrorForm::kPlain, Vectors, "Weaviate: embeddings",
     R"({"text": "a text", "config": {"task_type": "query"}})"},
    {"GET", "/meta", kMayListModels, ErrorForm::kPlain, Meta, "Weaviate: about the models"},
    {"GET", "/.well-known/ready", kMayCheck, ErrorForm::kPlain, Health, "Weaviate: readiness"},
});

}  // namespace

std::span<const Route> TeiRoutes() { return kTeiRoutes; }

}  // namespace castor::server::http
