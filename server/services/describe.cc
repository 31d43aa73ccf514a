#include "server/services/describe.h"

namespace castor::server {
namespace {

v1::EncodeOutput ToProto(EncodeOutput output) {
  switch (output) {
    case EncodeOutput::kPooled:
      return v1::POOLED;
    case EncodeOutput::kTokenEmbeddings:
      return v1::TOKEN_EMBEDDINGS;
  }
  return v1::ENCODE_OUTPUT_DEFAULT;
}

v1::Pooling ToProto(Pooling pooling) {
  switch (pooling) {
    case Pooling::kMean:
      return v1::MEAN;
    case Pooling::kCls:
      return v1::CLS;
  }
  return v1::POOLING_DEFAULT;
}

// Clustered or ImprovedClustered: the fields that both have.
template <typename Parameters, typename Message>
void FillClustered(const Parameters& defaults, Message* message) {
  message->set_clusters(defaults.clusters);
  message->set_iterations(defaults.iterations);
  message->set_bits(defaults.bits);
  message->set_hash_bias(defaults.hash_bias);
  message->set_seed(defaults.seed);
}

void FillLimits(const EngineOptions& options, v1::Limits* limits) {
  limits->set_max_queued_requests(options.max_queued_requests);
  limits->set_max_queued_tokens(options.max_queued_tokens);
  limits->set_max_queued_bytes(options.max_queued_bytes);
  limits->set_max_batch_tokens(options.max_batch_tokens);
  limits->set_max_batch_requests(options.max_batch_requests);
  limits->set_max_sequences(options.max_sequences);
  limits->set_max_text_bytes(options.max_text_bytes);
}

}  // namespace

v1::DataType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return v1::FLOAT32;
    case DType::kFloat16:
      return v1::FLOAT16;
    case DType::kBFloat16:
      return v1::BFLOAT16;
    case DType::kInt32:
      return v1::INT32;
    case DType::kInt64:
      return v1::INT64;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

v1::KernelName ToProto(KernelName name) {
  switch (name) {
    case KernelName::kVanilla:
      return v1::VANILLA;
    case KernelName::kClustered:
      return v1::CLUSTERED;
    case KernelName::kImprovedClustered:
      return v1::IMPROVED_CLUSTERED;
    case KernelName::kCast:
      return v1::CAST;
  }
  return v1::KERNEL_NAME_UNSPECIFIED;
}

v1::Model ToProto(const ModelInfo& model) {
  v1::Model result;
  result.set_name(model.name);
  result.set_family(model.family);
  result.set_dtype(ToProto(model.dtype));
  result.set_hidden_size(model.hidden_size);
  result.set_layers(model.layers);
  result.set_heads(model.heads);
  result.set_max_tokens(model.max_tokens);
  result.set_vocabulary_size(model.vocabulary_size);
  result.set_pooling(ToProto(model.pooling));
  result.set_normalize(model.normalize);
  for (const KernelName kernel : model.kernels) result.add_kernels(ToProto(kernel));
  for (const EncodeOutput output : model.outputs) result.add_outputs(ToProto(output));
  result.set_parameters(model.parameters);
  result.set_weight_bytes(model.weight_bytes);
  return result;
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
    entry->set_name(ToProto(kernel.name));
    for (const DType dtype : kernel.dtypes) entry->add_dtypes(ToProto(dtype));
    entry->set_backend(kernel.backend);
  }
  for (const ModelInfo& model : info.models) result.add_models(model.name);
  FillLimits(engine.options(), result.mutable_limits());
  FillClustered(Clustered{}, result.mutable_clustered_defaults());
  FillClustered(ImprovedClustered{}, result.mutable_improved_clustered_defaults());
  result.mutable_improved_clustered_defaults()->set_topk(ImprovedClustered{}.topk);
  return result;
}

}  // namespace castor::server
