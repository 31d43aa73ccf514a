// The rerankers' routes: Cohere's, Jina's, vLLM's, text-embeddings-inference's and Weaviate's.

#include <array>

#include "engine/base/error.h"
#include "server/http/texts.h"

namespace castor::server::http {
namespace {

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
  if (!documents || documents->empty()) read.fields.Fail(name, "missing: give a list of texts");
  const std::string_view instruction = read.fields.Text("instruction").value_or("");
  const int64_t top_n = read.fields.Integer("top_n").value_or(0);
  if (top_n < 0) read.fields.Fail("top_n", "must be at least 0");
  const bool property = read.fields.Find("property") != nullptr;
  const bool raw = tei && read.fields.Bool("raw_scores").value_or(false);
  const bool texts =
      property || read.fields.Bool(tei ? "return_text" : "return_documents").value_or(false);
  if (absl::Status s = read.status(); !s.ok()) return s;
  wire::RerankRequest from;
  from.model = read.model().name;
  from.query = *query;
  from.documents = *std::move(documents);
  from.return_documents = texts;
  from.instruction = instruction;
  EncodeRequest options = std::move(read.request());
  from.task = options.task;
  DecodedRerank& decoded = read.work.decoded = {};
  if (absl::Status s = ConvertRerankRequest(std::move(from), *door.models(), &decoded); !s.ok()) {
    return s;
  }
  decoded.request.truncate = options.truncate;
  decoded.request.truncation_side = options.truncation_side;
  decoded.request.max_tokens = options.max_tokens;
  const bool late = decoded.ranking.late_interaction;
  if (!late && instruction.empty()) decoded.request.prompt_name = std::move(options.prompt_name);
  read.work.names = {.texts = name, .query = "query"};
  read.work.write = [tei, raw, property, late, top_n, query = std::string(*query)](Result result) {
    const auto scores = std::make_shared<RerankScores>(ScoresOf(*result));
    std::vector<int32_t> order = RankByLogit(scores->logits);
    if (top_n > 0 && static_cast<size_t>(top_n) < order.size()) order.resize(top_n);
    const auto text = [result, late](int32_t i) {
      return std::string(result->texts[i + (late ? 1 : 0)]);
    };
    ListAnswer list{.head = "[", .rows = order.size(), .tail = "]"};
    list.row = [tei, raw, result, scores, text, order](size_t rank, std::string* out) {
      const int32_t i = order[rank];
      Json row = Json::object();
      row["index"] = i;
      row[tei ? "score" : "relevance_score"] = (raw ? scores->logits : scores->scores)[i];
      if (!result->texts.empty() && tei) row["text"] = text(i);
      if (!result->texts.empty() && !tei) row["document"] = {{"text", text(i)}};
      out->append(Dump(row));
    };
    if (tei) return AnswerOf(std::move(list));
    const int64_t tokens = TokensOf(*result);
    list.head = "{" + Members({{"id", "rerank"}, {"model", result->model}}) + ",\"results\":[";
    Json json = {{"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}},
                 {"meta",
                  {{"api_version", {{"version", "2"}}},
                   {"billed_units", {{"search_units", 1}, {"input_tokens", tokens}}},
                   {"tokens", {{"input_tokens", tokens}}}}}};
    if (property) {
      json["query"] = query;
      json["scores"] = Json::array();
      for (size_t i = 0; i < scores->scores.size(); ++i) {
        json["scores"].push_back(
            {{"document", text(static_cast<int32_t>(i))}, {"score", scores->scores[i]}});
      }
    }
    list.tail = "]," + Members(json) + "}";
    return AnswerOf(std::move(list));
  };
  return std::move(read.work);
}

constexpr char kDocuments[] =
    R"({"query": "a text", "documents": ["one", "another"], "top_n": 1, "model": "NAME"})";

constexpr auto kRerankRoutes = std::to_array<Route>({
    {"POST", "/rerank", kMayRerank, ErrorForm::kTei, Rerank,
     "TEI (texts), vLLM (documents), Weaviate (property): rerank",
     R"({"query": "a text", "texts": ["one", "another"], "return_text": true})"},
    {"POST", "/v1/rerank", kMayRerank, ErrorForm::kOpenAi, Rerank, "Jina: rerank", kDocuments},
    {"POST", "/v2/rerank", kMayRerank, ErrorForm::kOpenAi, Rerank, "Cohere: rerank", kDocuments},
});

}  // namespace

std::span<const Route> RerankRoutes() { return kRerankRoutes; }

}  // namespace castor::server::http
