// The routes of OpenAI and vLLM.

#include <array>
#include <ctime>

#include "engine/base/error.h"
#include "server/http/texts.h"

namespace castor::server::http {
namespace {

Json UsageOf(const EncodeResult& result) {
  const int64_t tokens = TokensOf(result);
  return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
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

absl::StatusOr<Work> Embeddings(const Door& door, Asked& asked) {
  Reading read(door, asked, kEmbeds);
  const auto format = read.fields.Text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    read.fields.Fail("encoding_format", "must be float or base64");
  }
  if (absl::Status s = read.ReadInput("input"); !s.ok()) return s;
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

// Azure's path names the model.
absl::StatusOr<Work> AzureEmbeddings(const Door& door, Asked& asked) {
  asked.model = asked.wildcard;
  return Embeddings(door, asked);
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
  const auto models = door.models();
  for (const ModelInfo& model : *models) {
    if (!model.outputs.empty()) data.push_back(Describe(door, model));
  }
  // Where a request loads its model, clients may choose any.
  const Engine& engine = door.services.engine;
  if (engine.options().catalog.control == ModelControl::kAuto) {
    for (const ModelStatus& status : engine.model_statuses()) {
      if (FindModel(models, status.name) != nullptr) continue;
      ModelInfo unloaded;
      unloaded.name = status.name;
      data.push_back(Describe(door, unloaded));
    }
  }
  return JsonAnswer({{"object", "list"}, {"data", data}});
}

absl::StatusOr<Work> GetModel(const Door& door, Asked& asked) {
  const ModelInfoPtr model = FindModel(door.models(), asked.wildcard);
  if (model != nullptr && !model->outputs.empty()) return JsonAnswer(Describe(door, *model));
  return MakeError(Reason::kModelNotFound,
                   "no model is named \"" + std::string(asked.wildcard) + "\"");
}

// One text for each other one, or one for all. Cross-encoders score pairs; other models are
// compared by the cosine of their vectors.
absl::StatusOr<Work> Score(const Door& door, Asked& asked) {
  const Need kScores{
      [](const ModelInfo& model) { return ScoresPairs(model) || kEmbeds.has(model); },
      EncodeOutput::kScores, "score"};
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
    read.work.decoded.ranking.late_interaction = true;  // in errors: the first text is the query
    request.output = EncodeOutput::kPooled;
    request.input = TextInput{*std::move(second), {}};
  }
  read.work.names = {.texts = "text_2", .query = "text_1"};
  read.work.write = [pairs](Result result) {
    ListAnswer list = DataList(*result, "score");
    const auto column = std::span(result->output.data.as<float>(), RowsOf(result->output));
    const auto scores = std::make_shared<std::vector<float>>(
        pairs ? std::vector<float>(column.begin(), column.end()) : CosinesToFirst(*result));
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
  if (absl::Status s = read.ReadInput("input"); !s.ok()) return s;
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
  if (absl::Status s = read.ReadInput("input"); !s.ok()) return s;
  read.request().output = EncodeOutput::kTokenEmbeddings;
  read.work.write = [](Result result) {
    ListAnswer envelope = DataList(*result, "pool");
    const auto open = [](size_t i) {
      return R"({"index":)" + std::to_string(i) + R"(,"object":"pooling","data":)";
    };
    return AnswerOf({envelope.head, result->lengths, open, "}", VectorRows(result), envelope.tail});
  };
  return std::move(read.work);
}

constexpr char kInput[] = R"({"input": ["a text", "another"], "model": "NAME"})";

constexpr auto kOpenAiRoutes = std::to_array<Route>({
    {"POST", "/v1/embeddings", kMayEncode, ErrorForm::kOpenAi, Embeddings, "OpenAI: embeddings",
     R"({"input": ["a text"], "model": "NAME", "encoding_format": "float", "dimensions": 384})"},
    {"POST", "/openai/deployments/*/embeddings", kMayEncode, ErrorForm::kOpenAi, AzureEmbeddings,
     "Azure: embeddings", kInput},
    {"GET", "/v1/models", kMayListModels, ErrorForm::kOpenAi, ListModels, "OpenAI: loaded models"},
    {"GET", "/v1/models/*", kMayListModels, ErrorForm::kOpenAi, GetModel, "OpenAI: one model"},
    {"POST", "/v1/score", kMayRerank, ErrorForm::kOpenAi, Score, "vLLM: scores of pairs",
     R"({"text_1": "a text", "text_2": ["one", "another"], "model": "NAME"})"},
    {"POST", "/v1/classify", kMayEncode, ErrorForm::kOpenAi, Classify, "vLLM: classify", kInput},
    {"POST", "/v1/pooling", kMayEncode, ErrorForm::kOpenAi, Pooling, "vLLM: token embeddings",
     kInput},
});

}  // namespace

std::span<const Route> OpenAiRoutes() { return kOpenAiRoutes; }

}  // namespace castor::server::http
