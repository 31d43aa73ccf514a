#include "server/oip/catalogue.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace castor::server::oip {
namespace {

constexpr std::string_view kPlatform = "castor";

std::string AliasOf(std::string name) {
  for (char& c : name) {
    const auto byte = static_cast<unsigned char>(c);
    c = byte < 0x80 && std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return name;
}

bool Has(const ModelInfo& info, EncodeOutput output) {
  return std::count(info.outputs.begin(), info.outputs.end(), output) > 0;
}

void AddAttention(const Engine&, std::vector<std::unique_ptr<Model>>* models) {
  auto model = std::make_unique<Model>();
  model->name = kAttentionModel;
  model->attention = true;
  model->inputs = {{"query", "FP32", {-1, -1, -1}},      {"key", "FP32", {-1, -1, -1}},
                   {"value", "FP32", {-1, -1, -1}},      {"query_lengths", "INT64", {-1}, true},
                   {"key_lengths", "INT64", {-1}, true}, {"key_bias", "FP32", {-1}, true}};
  model->outputs = {{"output", "FP32", {-1, -1, -1}}, {"log_sum_exp", "FP32", {-1, -1}}};
  models->push_back(std::move(model));
}

void AddEncoder(const ModelInfo& info, std::vector<std::unique_ptr<Model>>* models) {
  if (info.outputs.empty()) return;  // a file of CAST layers
  auto model = std::make_unique<Model>();
  model->name = info.name;
  model->info = info;
  const int64_t labels = static_cast<int64_t>(info.labels.size());
  model->reranker = labels == 1 && !info.token_labels && Has(info, EncodeOutput::kLogits);
  if (model->reranker) {
    model->inputs = {{"query", "BYTES", {-1, 1}}, {"passage", "BYTES", {-1, 1}}};
  } else {
    model->inputs = {{"text", "BYTES", {-1, 1}}};
  }
  model->inputs.push_back({"input_ids", "INT64", {-1}, true});
  model->inputs.push_back({"lengths", "INT64", {-1}, true});
  const int64_t pooled = info.dimensions > 0    ? info.dimensions
                         : info.pooled_size > 0 ? info.pooled_size
                                                : info.hidden_size;
  const auto add = [&](EncodeOutput output, TensorRow row) {
    if (Has(info, output)) model->outputs.push_back(std::move(row));
  };
  if (model->reranker) {
    model->outputs = {{"index", "INT32", {-1, 1}}, {"logit", "FP32", {-1, 1}}};
  }
  add(EncodeOutput::kPooled, {"embeddings", "FP32", {-1, pooled}});
  model->outputs.push_back({"token_count", "INT32", {-1}});
  add(EncodeOutput::kTokenEmbeddings,
      {"token_embeddings", "FP32", {-1, info.token_size > 0 ? info.token_size : info.hidden_size}});
  add(EncodeOutput::kLogits, {"logits", "FP32", {-1, labels}});
  add(EncodeOutput::kScores, {"scores", "FP32", {-1, labels}});
  add(EncodeOutput::kSparse, {"sparse_indices", "INT32", {-1}});
  add(EncodeOutput::kSparse, {"sparse_values", "FP32", {-1}});
  add(EncodeOutput::kSparse, {"sparse_lengths", "INT64", {-1}});
  model->outputs.push_back({"lengths", "INT64", {-1}});
  models->push_back(std::move(model));
}

inference::DataType DataTypeOf(std::string_view datatype) {
  if (datatype == "BYTES") return inference::TYPE_STRING;
  inference::DataType type = inference::TYPE_INVALID;
  inference::DataType_Parse("TYPE_" + std::string(datatype), &type);
  return type;
}

uint64_t Nanoseconds(double us) { return us > 0 ? static_cast<uint64_t>(us * 1000) : 0; }

void Set(uint64_t count, uint64_t ns, inference::StatisticDuration* out) {
  out->set_count(count);
  out->set_ns(ns);
}

}  // namespace

void ModelCounters::Answered(const ExecutionReport& report, int64_t inferences, double total_us) {
  ns_[kTotal] += Nanoseconds(total_us);
  ns_[kQueue] += Nanoseconds(report.timing.queue_us);
  ns_[kInput] += Nanoseconds(report.timing.copy_in_us);
  ns_[kInfer] += Nanoseconds(report.timing.compute_us);
  ns_[kOutput] += Nanoseconds(report.timing.copy_out_us);
  inferences_ += static_cast<uint64_t>(inferences);
  execution_parts_ += kParts / static_cast<uint64_t>(std::max(report.batch.requests, 1));
  last_ms_ = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                       std::chrono::system_clock::now().time_since_epoch())
                                       .count());
  ++answered_;
}

void ModelCounters::Failed(double total_us) {
  ns_[kFail] += Nanoseconds(total_us);
  ++failed_;
}

void ModelCounters::Fill(inference::ModelStatistics* out) const {
  const uint64_t count = answered_;  // one for all: clients refuse counts that differ
  out->set_last_inference(last_ms_);
  out->set_inference_count(inferences_);
  out->set_execution_count((execution_parts_ + kParts / 2) / kParts);
  inference::InferStatistics* const stats = out->mutable_inference_stats();
  Set(count, ns_[kTotal], stats->mutable_success());
  Set(failed_, ns_[kFail], stats->mutable_fail());
  Set(count, ns_[kQueue], stats->mutable_queue());
  Set(count, ns_[kInput], stats->mutable_compute_input());
  Set(count, ns_[kInfer], stats->mutable_compute_infer());
  Set(count, ns_[kOutput], stats->mutable_compute_output());
}

void Model::Fill(inference::ModelMetadataResponse* out) const {
  out->set_name(name);
  out->add_versions(std::string(kVersion));
  out->set_platform(std::string(kPlatform));
  const auto add = [](const TensorRow& row, auto* tensor) {
    tensor->set_name(std::string(row.name));
    tensor->set_datatype(std::string(row.datatype));
    tensor->mutable_shape()->Assign(row.shape.begin(), row.shape.end());
  };
  for (const TensorRow& row : inputs) add(row, out->add_inputs());
  for (const TensorRow& row : outputs) add(row, out->add_outputs());
}

void Model::Fill(inference::ModelConfig* out) const {
  out->set_name(name);
  out->set_platform(std::string(kPlatform));
  out->set_backend(std::string(kPlatform));
  const auto add = [](const TensorRow& row, auto* tensor) {
    tensor->set_name(std::string(row.name));
    tensor->set_data_type(DataTypeOf(row.datatype));
    tensor->mutable_dims()->Assign(row.shape.begin(), row.shape.end());
  };
  for (const TensorRow& row : inputs) {
    inference::ModelInput* const input = out->add_input();
    add(row, input);
    input->set_optional(row.optional);
  }
  for (const TensorRow& row : outputs) add(row, out->add_output());
}

Catalogue::Catalogue(const Engine& engine) {
  AddAttention(engine, &models_);
  for (const ModelInfo& info : engine.info().models) AddEncoder(info, &models_);
  for (const auto& model : models_) model->alias = AliasOf(model->name);
}

absl::StatusOr<const Model*> Catalogue::Find(std::string_view name,
                                             std::string_view version) const {
  const auto find = [&](auto member) {
    return std::find_if(models_.begin(), models_.end(),
                        [&](const auto& model) { return (*model).*member == name; });
  };
  auto found = find(&Model::name);
  if (found == models_.end()) found = find(&Model::alias);
  if (found == models_.end()) {
    return MakeError(Reason::kModelNotFound, "no model is named \"" + std::string(name) +
                                                 "\"; RepositoryIndex lists all models");
  }
  if (!version.empty() && version != kVersion) {
    return InvalidField("model_version", "the only one is \"1\"");
  }
  return found->get();
}

}  // namespace castor::server::oip
