#include "server/oip/catalogue.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "server/services/models.h"

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

// "vanilla,clustered"
template <typename Rows, typename ToName>
std::string Names(const Rows& rows, ToName name) {
  std::string names;
  for (const auto& row : rows) (names += names.empty() ? "" : ",") += castor::NameOf(name(row));
  return names;
}

ModelPtr DescribeAttention(const EngineInfo& info) {
  auto model = std::make_shared<Model>();
  model->name = kAttentionModel;
  model->attention = true;
  model->inputs = {{"query", "FP32", {-1, -1, -1}},      {"key", "FP32", {-1, -1, -1}},
                   {"value", "FP32", {-1, -1, -1}},      {"query_lengths", "INT64", {-1}, true},
                   {"key_lengths", "INT64", {-1}, true}, {"key_bias", "FP32", {-1}, true}};
  model->outputs = {{"output", "FP32", {-1, -1, -1}}, {"log_sum_exp", "FP32", {-1, -1}}};
  // A tensor's metadata has room for one.
  model->properties = {
      {"attention", Names(info.kernels, [](const KernelInfo& k) { return k.name; })},
      {"datatypes", "FP32,FP16,BF16"}};
  model->alias = AliasOf(model->name);
  return model;
}

std::shared_ptr<Model> DescribeEncoder(const ModelInfo& info) {
  auto model = std::make_shared<Model>();
  model->name = info.name;
  model->alias = AliasOf(info.name);
  model->info = info;
  const int64_t labels = static_cast<int64_t>(info.labels.size());
  model->reranker = labels == 1 && !info.token_labels && Has(info, EncodeOutput::kLogits);
  if (model->reranker) {
    model->inputs = {{"query", "BYTES", {-1, 1}, true}, {"passage", "BYTES", {-1, 1}, true}};
  } else {
    model->inputs = {{"text", "BYTES", {-1, 1}, true}};
  }
  model->inputs.push_back({"input_ids", "INT64", {-1, -1}, true});
  model->inputs.push_back({"attention_mask", "INT64", {-1, -1}, true});
  model->inputs.push_back({"lengths", "INT64", {-1}, true});
  model->inputs.push_back({"ranges", "FP32", {2, -1}, true});
  model->properties = {{"attention", Names(info.kernels, [](KernelName name) { return name; })},
                       {"max_tokens", std::to_string(info.max_tokens)}};
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
  return model;
}

inference::DataType DataTypeOf(std::string_view datatype) {
  if (datatype == "BYTES") return inference::TYPE_STRING;
  inference::DataType type = inference::TYPE_INVALID;
  inference::DataType_Parse("TYPE_" + std::string(datatype), &type);
  return type;
}

}  // namespace

void ModelCounters::Answered(const ExecutionReport& report, int64_t inferences, double total_us) {
  using std::chrono::milliseconds, std::chrono::system_clock;
  const auto now = std::chrono::duration_cast<milliseconds>(system_clock::now().time_since_epoch());
  const int32_t requests = report.batch.requests;
  const Timing& timing = report.timing;
  MutexLock lock(mu_);
  ++answered_;
  inferences_ += static_cast<uint64_t>(inferences);
  last_ms_ = static_cast<uint64_t>(now.count());
  total_us_ += total_us;
  queue_us_ += timing.queue_us;
  const auto add = [&](double part, Times* times) {
    times->input += part * timing.copy_in_us;
    times->infer += part * timing.compute_us;
    times->output += part * timing.copy_out_us;
  };
  add(1, &times_);
  if (requests == 0) return;  // it came from the answer cache
  Batches& batches = batches_[requests];
  batches.executions += 1.0 / requests;
  add(1.0 / requests, &batches.times);
}

void ModelCounters::Failed(double total_us) {
  MutexLock lock(mu_);
  ++failed_;
  failed_us_ += total_us;
}

void ModelCounters::Fill(inference::ModelStatistics* out) const {
  const auto set = [](uint64_t count, double us, inference::StatisticDuration* duration) {
    duration->set_count(count);
    duration->set_ns(us > 0 ? static_cast<uint64_t>(us * 1000) : 0);
  };
  // One count for all: clients refuse counts that differ.
  const auto set_times = [&](uint64_t count, const Times& times, auto* stats) {
    set(count, times.input, stats->mutable_compute_input());
    set(count, times.infer, stats->mutable_compute_infer());
    set(count, times.output, stats->mutable_compute_output());
  };
  MutexLock lock(mu_);
  out->set_last_inference(last_ms_);
  out->set_inference_count(inferences_);
  inference::InferStatistics* const stats = out->mutable_inference_stats();
  set(answered_, total_us_, stats->mutable_success());
  set(failed_, failed_us_, stats->mutable_fail());
  set(answered_, queue_us_, stats->mutable_queue());
  set_times(answered_, times_, stats);
  uint64_t executions = 0;
  for (const auto& [requests, batches] : batches_) {
    const auto count = static_cast<uint64_t>(std::llround(batches.executions));
    executions += count;
    inference::InferBatchStatistics* const row = out->add_batch_stats();
    row->set_batch_size(static_cast<uint64_t>(requests));
    set_times(count, batches.times, row);
  }
  out->set_execution_count(executions);
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
  out->mutable_properties()->insert(properties.begin(), properties.end());
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

Catalogue::Catalogue(const Engine& engine)
    : engine_(engine), attention_(DescribeAttention(engine.info())) {}

std::shared_ptr<const Models> Catalogue::models() const {
  std::shared_ptr<const ModelInfos> loaded = engine_.models();
  MutexLock lock(mu_);
  if (loaded == described_) return models_;
  auto models = std::make_shared<Models>(1, attention_);
  for (const ModelInfo& info : *loaded) {
    if (info.outputs.empty()) continue;  // a file of CAST layers
    std::shared_ptr<Model> model = DescribeEncoder(info);
    std::shared_ptr<ModelCounters>& counters = counters_[info.name];
    if (counters == nullptr) counters = model->counters;
    model->counters = counters;
    models->push_back(std::move(model));
  }
  described_ = std::move(loaded);
  return models_ = std::move(models);
}

std::vector<IndexRow> Catalogue::Index() const {
  std::vector<IndexRow> rows = {{attention_->name, kReady}};
  const std::shared_ptr<const ModelInfos> loaded = engine_.models();
  for (const ModelStatus& status : engine_.model_statuses()) {
    const ModelInfoPtr info = FindModel(loaded, status.name);
    if (info != nullptr && info->outputs.empty()) continue;  // a file of CAST layers
    const bool loads = status.state == ModelState::kLoading || status.state == ModelState::kWaiting;
    rows.push_back({status.name,
                    info != nullptr                          ? kReady
                    : loads                                  ? "LOADING"
                    : status.state == ModelState::kUnloading ? "UNLOADING"
                                                             : "UNAVAILABLE",
                    status.state == ModelState::kUnloaded ? "unloaded" : status.failure});
  }
  return rows;
}

absl::StatusOr<ModelPtr> Catalogue::Find(std::string_view name, std::string_view version) const {
  const auto is_named = [&](const ModelPtr& model) { return model->name == name; };
  const auto has_alias = [&](const ModelPtr& model) { return model->alias == name; };
  const std::shared_ptr<const Models> models = this->models();
  auto found = std::ranges::find_if(*models, is_named);
  if (found == models->end() && std::ranges::count_if(*models, has_alias) == 1) {
    found = std::ranges::find_if(*models, has_alias);
  }
  if (found == models->end()) {
    return Missing(
        engine_, name,
        "no model is named \"" + std::string(name) + "\"; RepositoryIndex lists all models");
  }
  if (version.empty() || version == kVersion) return *found;
  int64_t number = 0;
  const char* const end = version.data() + version.size();
  const auto [rest, error] = std::from_chars(version.data(), end, number);
  if (error != std::errc() || rest != end || number < 0) {
    return InvalidField("model_version", "must be empty or a whole number, 0 or more");
  }
  return MakeError(Reason::kModelNotFound, "\"" + std::string(name) + "\" has no version " +
                                               std::to_string(number) + "; its only one is " +
                                               std::string(kVersion));
}

}  // namespace castor::server::oip
