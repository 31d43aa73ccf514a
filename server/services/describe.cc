#include "server/codec/enums.h"
#include "server/codec/response.h"
#include "server/services/services.h"

namespace castor::server {
namespace {

void FillLimits(const EngineOptions& options, int64_t max_device_bytes, v1::Limits* limits) {
  limits->set_max_device_bytes(max_device_bytes);
  limits->set_max_queued_requests(options.max_queued_requests);
  limits->set_max_queued_tokens(options.max_queued_tokens);
  limits->set_max_queued_bytes(options.max_queued_bytes);
  limits->set_max_queued_time_ms(options.max_queued_time.count());
  limits->set_max_request_time_ms(options.max_request_time.count());
  limits->set_max_batch_tokens(options.max_batch_tokens);
  limits->set_max_batch_requests(options.max_batch_requests);
  limits->set_max_sequences(options.max_sequences);
  limits->set_max_text_bytes(options.max_text_bytes);
}

// Pooled if it pools, else of tokens.
int64_t SizeOfRows(const ModelInfo& model) {
  if (model.pooled_size > 0) return model.pooled_size;
  return model.token_size > 0 ? model.token_size : model.hidden_size;
}

}  // namespace

void Describe(const ModelInfo& model, v1::Model* out) {
  out->set_name(model.name);
  out->set_family(model.family);
  out->set_dtype(ToWire(kDTypes, model.dtype));
  out->set_hidden_size(SizeOfRows(model));
  out->set_body_size(model.hidden_size);
  out->set_layers(model.layers);
  out->set_heads(model.heads);
  out->set_max_tokens(model.max_tokens);
  out->set_vocabulary_size(model.vocabulary_size);
  out->set_pooling(ToWire(kPoolings, model.pooling));
  out->set_normalize(model.normalize);
  out->set_dimensions(static_cast<int32_t>(model.dimensions));
  out->set_similarity_fn_name(model.similarity);
  out->set_truncation_side(ToWire(kTruncationSides, model.truncation_side));
  for (const KernelName kernel : model.kernels) {
    out->add_kernels(ToWire(kKernelNames, kernel));
  }
  for (const EncodeOutput output : model.outputs) {
    out->add_outputs(ToWire(kEncodeOutputs, output));
  }
  for (const Prompt& prompt : model.prompts.all) {
    v1::Model::Prompt* const added = out->add_prompts();
    added->set_name(prompt.name);
    added->set_text(prompt.text);
    added->set_left_out(prompt.left_out);
  }
  out->set_default_prompt(model.prompts.default_name);
  for (const std::string& label : model.labels) out->add_labels(label);
  out->set_token_labels(model.token_labels);
  out->set_takes_instruction(model.takes_instruction);
  out->mutable_tasks()->Assign(model.tasks.begin(), model.tasks.end());
  out->set_needs_task(model.needs_task);
  out->set_parameters(model.parameters);
  out->set_weight_bytes(model.weight_bytes);
  if (model.int8.has_value()) {
    out->mutable_int8()->set_mean_cosine(model.int8->mean_cosine);
    out->mutable_int8()->set_least_cosine(model.int8->least_cosine);
  }
}

v1::ServerInfo Describe(const Engine& engine) {
  const EngineInfo& info = engine.info();
  v1::ServerInfo result;
  v1::Device* device = result.add_devices();
  device->set_name(info.device.name);
  device->set_description(info.device.description);
  device->set_memory_bytes(info.device.memory_bytes);
  device->set_threads(info.device.threads);
  device->set_backend(info.device.backend);
  for (const KernelInfo& kernel : info.kernels) {
    v1::KernelInfo* entry = result.add_kernels();
    entry->set_name(ToWire(kKernelNames, kernel.name));
    for (const DType dtype : kernel.dtypes) entry->add_dtypes(ToWire(kDTypes, dtype));
    entry->set_backend(kernel.backend);
    entry->set_log_sum_exp(kernel.log_sum_exp);
    entry->set_positions(kernel.positions);
    entry->set_softcap(kernel.softcap);
    entry->set_key_bias(kernel.key_bias);
  }
  FillLimits(engine.options(), info.max_device_bytes, result.mutable_limits());
  FillParameters(Clustered{}, result.mutable_clustered_defaults());
  FillParameters(ImprovedClustered{}, result.mutable_improved_clustered_defaults());
  return result;
}

}  // namespace castor::server
