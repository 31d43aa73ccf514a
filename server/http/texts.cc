#include "server/http/texts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/ascii.h"
#include "engine/base/error.h"
#include "server/tei/models.h"

namespace castor::server::http {
namespace {

template <EncodeOutput kOutput>
bool HasOutput(const ModelInfo& model) {
  return tei::Has(model, kOutput);
}

// The fields that several protocols have.
void ReadOptions(ObjectReader& fields, const Chosen& chosen, EncodeRequest* out) {
  out->model = chosen.model->name;
  out->generation = chosen.model->generation;
  if (const auto name = fields.Text("prompt_name")) out->prompt_name = *name;
  std::string_view role = chosen.role;
  for (const char* field : {"input_type", "task_type"}) {
    if (const auto text = fields.Text(field)) role = *text;
  }
  // Of other models it is vLLM's word for an output, or Jina's for what they do not have.
  const auto& tasks = chosen.model->tasks;
  if (const auto task = tasks.empty() ? std::nullopt : fields.Text("task"); task.has_value()) {
    // Jina's own API names a task of jina-embeddings-v5 and its prompt together: "retrieval.query".
    const size_t dot = task->rfind('.');
    const bool both = std::ranges::count(tasks, *task) == 0 && dot != task->npos &&
                      std::ranges::count(tasks, task->substr(0, dot)) > 0;
    out->task = both ? task->substr(0, dot) : *task;
    if (both) role = task->substr(dot + 1);
  }
  if (!out->prompt_name.has_value()) {
    out->prompt_name = PromptFor(*chosen.model, role);
    // The task may have a prompt.
    if (!out->task.empty() && out->prompt_name == "") out->prompt_name.reset();
  }
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

}  // namespace

const Need kEmbeds{HasOutput<EncodeOutput::kPooled>, EncodeOutput::kPooled, "embed"};
const Need kTokenRows{HasOutput<EncodeOutput::kTokenEmbeddings>, EncodeOutput::kTokenEmbeddings,
                      "give token embeddings"};
const Need kSparseRows{HasOutput<EncodeOutput::kSparse>, EncodeOutput::kSparse,
                       "give sparse embeddings"};
const Need kClassifies{tei::Classifies, EncodeOutput::kScores, "classify"};
const Need kReranks{CanRerank, EncodeOutput::kScores, "rerank"};
const Need kAny{[](const ModelInfo&) { return true; }, EncodeOutput::kPooled, "encode"};

absl::StatusOr<Chosen> Choose(const Door& door, const Asked& asked, ObjectReader& fields,
                              const Need& need) {
  std::optional<std::string> name = asked.model;
  if (const auto text = fields.Text("model"); !name.has_value() && text.has_value()) name = *text;
  if (!fields.status().ok()) return fields.status();
  const std::shared_ptr<const ModelInfos> models = door.models();
  const auto find = [&](std::string_view wanted) {
    ModelInfoPtr model = FindModel(models, wanted);
    return model == nullptr || model->outputs.empty() ? nullptr : model;
  };
  if (!name.has_value()) {
    const ModelInfoPtr preferred = find(door.default_model);
    if (preferred != nullptr && need.has(*preferred)) return Chosen{preferred};
    if (preferred == nullptr && !door.default_model.empty()) {
      const absl::Status missing = door.services.engine.NotLoaded(door.default_model);
      if (ReasonOf(missing) == Reason::kModelLoading) return missing;
    }
    std::vector<ModelInfoPtr> able, made;
    for (const ModelInfo& model : *models) {
      if (!model.alias_of.empty() || model.outputs.empty() || !need.has(model)) continue;
      able.emplace_back(models, &model);
      if (model.outputs.front() == need.output) made.push_back(able.back());
    }
    if (able.size() == 1) return Chosen{able.front()};
    if (made.size() == 1) return Chosen{made.front()};
    return MakeError(Reason::kModelNotFound,
                     able.empty() ? "no loaded model can " + std::string(need.verb)
                                  : "several loaded models can " + std::string(need.verb) +
                                        ": choose one by the field `model`, the header "
                                        "castor-model or the path /models/NAME/..., or start the "
                                        "server with --tei-model");
  }
  Chosen chosen{find(*name)};
  for (const std::string_view role : {"query", "passage"}) {
    const std::string end = "-" + std::string(role);
    if (chosen.model != nullptr || !name->ends_with(end)) continue;
    chosen = {find(std::string_view(*name).substr(0, name->size() - end.size())), role};
  }
  if (chosen.model == nullptr) {
    return Missing(door.services.engine, *name,
                   "no model is named \"" + *name + "\"; /v1/models lists the loaded ones");
  }
  if (need.has(*chosen.model)) return chosen;
  return InvalidField("model", "\"" + chosen.model->name + "\" cannot " + std::string(need.verb));
}

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

Reading::Reading(const Door& door, Asked& asked, const Need& need)
    : door(door),
      fields(asked.body.root(), door.services.decoding.max_sequences),
      chosen(Choose(door, asked, fields, need)) {
  if (chosen.ok()) ReadOptions(fields, *chosen, &request());
}

absl::Status Reading::ReadInput(std::string_view name) {
  if (!status().ok()) return status();
  const Value* const input = fields.Find(name);
  if (input == nullptr) return InvalidField(name, "missing: give a text or a list of texts");
  const Value* const first = input->IsArray() && !input->Empty() ? &(*input)[0] : input;
  if (!first->IsInt64() && (!first->IsArray() || first->Empty())) {
    request().input = TextInput{fields.TextsAt(name, *input), {}};
    return status();
  }
  if (!door.token_ids) {
    return InvalidField(name,
                        "token ids are of another vocabulary: send texts (LangChain: set "
                        "check_embedding_ctx_length=False), or start the server with "
                        "--http-token-ids");
  }
  request().input = fields.TokensAt(name, *input);
  return status();
}

int64_t TokensOf(const EncodeResult& result) {
  return std::accumulate(result.token_counts.begin(), result.token_counts.end(), int64_t{0});
}

std::string Members(const Json& object) {
  const std::string text = Dump(object);
  return text.substr(1, text.size() - 2);
}

RowWriter VectorRows(Result result) {
  return [result = std::move(result)](size_t i, std::string* out) {
    AppendFloats(Row(result->output, i), out);
  };
}

Answer AnswerOf(NestedAnswer list) {
  Answer answer;
  answer.more = [list = std::move(list), sequence = size_t{0}, in = int64_t{0},
                 at = size_t{0}](std::string* out) mutable {
    if (sequence == 0 && in == 0) out->append(list.head);
    for (; sequence < list.lengths.size(); ++sequence, in = 0) {
      if (in == 0) out->append(sequence == 0 ? "" : ",").append(list.open(sequence)).push_back('[');
      for (; in < list.lengths[sequence]; ++in) {
        if (in > 0 && out->size() >= kPieceBytes) return true;
        if (in > 0) out->push_back(',');
        list.write(at++, out);
      }
      out->append("]").append(list.close);
    }
    out->append(list.tail);
    return false;
  };
  return answer;
}

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

}  // namespace castor::server::http
