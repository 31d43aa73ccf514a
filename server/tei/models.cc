#include "server/tei/models.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "server/codec/rerank_codec.h"
#include "tei/v1/tei.grpc.pb.h"

namespace castor::server::tei {
namespace {

constexpr char kMetadata[] = "castor-model";

}  // namespace

std::string Models::NamedBy(const Call& call) {
  const auto chosen = call.headers(kMetadata);
  return chosen.empty() ? "" : std::string(chosen.front());
}

Choice Models::Choose(const std::string& named) const {
  const std::shared_ptr<const ModelInfos> loaded = engine_.models();
  const std::string& name = named.empty() ? default_model_ : named;
  if (!name.empty()) {
    ModelInfoPtr model = FindModel(loaded, name);
    if (model != nullptr && !model->outputs.empty()) return {.model = std::move(model)};
    return {.error = Missing(engine_, name,
                             named.empty() ? "the model of --tei-model is not loaded"
                                           : "the metadata castor-model does not name a loaded "
                                             "encoder")};
  }
  Choice only;
  int encoders = 0;
  for (const ModelInfo& model : *loaded) {
    if (model.outputs.empty() || !model.alias_of.empty()) continue;  // CAST layers, or a name
    ++encoders;
    only.model = ModelInfoPtr(loaded, &model);
  }
  if (encoders == 1) return only;
  return {.error = MakeError(Reason::kModelNotFound,
                             encoders == 0
                                 ? "no encoder is loaded: start the server with --model"
                                 : "several models are loaded: start the server with --tei-model, "
                                   "or send the metadata castor-model with each call")};
}

std::vector<std::string> Models::Services() const {
  std::vector<std::string> names = {::tei::v1::Info::service_full_name(),
                                    ::tei::v1::Tokenize::service_full_name()};
  const Choice choice = Choose("");
  if (!choice.error.ok()) return names;
  const ModelInfo& model = *choice.model;
  const auto add = [&](bool has, const char* name) {
    if (has) names.emplace_back(name);
  };
  add(!Classifies(model), ::tei::v1::Embed::service_full_name());
  add(Classifies(model), ::tei::v1::Predict::service_full_name());
  add(ScoresPairs(model), ::tei::v1::Rerank::service_full_name());
  return names;
}

bool Has(const ModelInfo& model, EncodeOutput output) {
  return std::ranges::count(model.outputs, output) > 0;
}

bool Classifies(const ModelInfo& model) {
  return Has(model, EncodeOutput::kLogits) && !model.token_labels;
}

}  // namespace castor::server::tei
