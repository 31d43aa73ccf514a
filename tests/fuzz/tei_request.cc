// tei.v1's requests: what protobuf accepts, and nothing else, is read; and refused with a reason,
// or becomes a request of the engine's that has the message's texts. The first byte says which
// message the rest is.

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "server/tei/messages.h"
#include "server/tei/models.h"

namespace castor::server::tei {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

ModelInfo ModelOf(std::vector<EncodeOutput> outputs, std::vector<std::string> labels) {
  ModelInfo model;
  model.name = "model";
  model.hidden_size = 8;
  model.max_tokens = 1;
  model.outputs = std::move(outputs);
  model.labels = std::move(labels);
  model.prompts.all = {{"query", "q: "}};
  return model;
}

// Of all kinds.
const std::vector<ModelInfo>& Models() {
  static const std::vector<ModelInfo> models = {
      ModelOf({EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings, EncodeOutput::kSparse}, {}),
      ModelOf({EncodeOutput::kScores, EncodeOutput::kLogits}, {"a"}),
      ModelOf({EncodeOutput::kScores, EncodeOutput::kLogits}, {"a", "b"})};
  return models;
}

void Check(const EncodeRequest& request, const AnswerContext& context) {
  if (const auto* tokens = std::get_if<TokenInput>(&request.input)) {
    return Require(std::holds_alternative<DetokenizeOnly>(request.instead) &&
                   tokens->lengths.empty());
  }
  const auto& input = std::get<TextInput>(request.input);
  size_t bytes = 0;
  for (size_t i = 0; i < input.texts.size(); ++i) {
    const size_t pair = input.pairs.empty() ? 0 : input.pairs.at(i).size();
    Require(input.texts[i].size() + pair > 0);
    bytes += input.texts[i].size() + pair;
  }
  Require(context.characters >= 0 && static_cast<size_t>(context.characters) <= bytes);
  Require(input.allow_special_tokens);
}

template <typename Request, typename Message>
void Run(const uint8_t* data, size_t size) {
  static DecodeBudget budget(EngineOptions(), INT64_MAX);
  grpc::Slice slice(data, size);
  SliceView slices(grpc::ByteBuffer(&slice, 1), budget);
  Request request;
  const absl::Status parsed = wire::Parse(&slices, &request);
  if (!parsed.ok() && std::string(parsed.message()).ends_with(" elements")) return;
  Require(parsed.ok() == Message().ParseFromArray(data, static_cast<int>(size)));
  if (!parsed.ok()) return;
  for (const ModelInfo& model : Models()) {
    Converted converted;
    const absl::Status status = Convert(request, model, &converted);
    if (status.ok()) {
      Check(converted.request, converted.answer_context);
    } else {
      Require(!status.message().empty());
    }
  }
}

}  // namespace
}  // namespace castor::server::tei

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor::server::tei;
  namespace wire = castor::server::wire;
  using Target = void (*)(const uint8_t*, size_t);
  constexpr Target kTargets[] = {Run<wire::tei::EmbedRequest, proto::EmbedRequest>,
                                 Run<wire::tei::EmbedSparseRequest, proto::EmbedSparseRequest>,
                                 Run<wire::tei::EmbedAllRequest, proto::EmbedAllRequest>,
                                 Run<wire::tei::PredictRequest, proto::PredictRequest>,
                                 Run<wire::tei::PredictPairRequest, proto::PredictPairRequest>,
                                 Run<wire::tei::RerankRequest, proto::RerankRequest>,
                                 Run<wire::tei::EncodeRequest, proto::EncodeRequest>,
                                 Run<wire::tei::DecodeRequest, proto::DecodeRequest>};
  if (size == 0) return 0;
  kTargets[data[0] % std::size(kTargets)](data + 1, size - 1);
  return 0;
}
