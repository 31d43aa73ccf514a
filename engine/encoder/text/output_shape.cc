#include "engine/encoder/text/output_shape.h"

#include <algorithm>

namespace castor::encoder {

std::span<const EncodeOutput> OutputsOf(const EncodeRequest& request, const ModelInfo& info) {
  if (!request.outputs.empty()) return request.outputs;
  if (request.output.has_value()) return {&*request.output, 1};
  static constexpr EncodeOutput kUsual = EncodeOutput::kPooled;
  return {info.outputs.empty() ? &kUsual : info.outputs.data(), 1};
}

int64_t WidthOf(const ModelInfo& info, EncodeOutput output) {
  switch (output) {
    case EncodeOutput::kPooled:
      return info.pooled_size > 0 ? info.pooled_size : info.hidden_size;
    case EncodeOutput::kTokenEmbeddings:
      return info.token_size > 0 ? info.token_size : info.hidden_size;
    case EncodeOutput::kLogits:
    case EncodeOutput::kScores:
      return static_cast<int64_t>(info.labels.size());
    case EncodeOutput::kSparse:
      return info.vocabulary_size;
  }
  return 0;
}

int64_t DimensionsOf(const EncodeRequest& request, const ModelInfo& info, EncodeOutput output) {
  const int64_t width = WidthOf(info, output);
  if (!HasVectors(output)) return width;
  if (request.dimensions > 0) return request.dimensions;
  if (output != EncodeOutput::kPooled || info.dimensions == 0) return width;
  return std::min(info.dimensions, width);
}

bool PerToken(const ModelInfo& info, EncodeOutput output) {
  const bool labels = output == EncodeOutput::kLogits || output == EncodeOutput::kScores;
  return output == EncodeOutput::kTokenEmbeddings || (labels && info.token_labels);
}

bool Pools(std::span<const EncodeOutput> outputs) {
  return std::ranges::find(outputs, EncodeOutput::kPooled) != outputs.end();
}

bool HasVectors(EncodeOutput output) {
  return output == EncodeOutput::kPooled || output == EncodeOutput::kTokenEmbeddings;
}

std::string_view OutputName(EncodeOutput output) {
  switch (output) {
    case EncodeOutput::kPooled:
      return "POOLED";
    case EncodeOutput::kTokenEmbeddings:
      return "TOKEN_EMBEDDINGS";
    case EncodeOutput::kLogits:
      return "LOGITS";
    case EncodeOutput::kScores:
      return "SCORES";
    case EncodeOutput::kSparse:
      return "SPARSE";
  }
  return "";
}

std::string NamesOfOutputs(const ModelInfo& info) {
  std::string names;
  for (const EncodeOutput output : info.outputs) {
    if (!names.empty()) names += ", ";
    names += OutputName(output);
  }
  return names;
}

}  // namespace castor::encoder
