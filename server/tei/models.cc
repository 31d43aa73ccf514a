#include "server/tei/models.h"

#include <algorithm>
#include <string_view>

#include "engine/base/error.h"
#include "server/codec/rerank_codec.h"
#include "tei/v1/tei.grpc.pb.h"

namespace castor::server::tei {
namespace {

constexpr char kMetadata[] = "castor-model";

}  // namespace

Models::Models(const std::vector<ModelInfo>& loaded, const std::string& default_model)
    : unknown_{.model = {},
               .error = MakeError(Reason::kModelNotFound,
                                  "the metadata castor-model does not name a loaded encoder")} {
  int different = 0;
  for (const ModelInfo& model : loaded) {
    if (model.outputs.empty()) continue;  // a file of CAST layers
    choices_[model.name].model = model;
    if (!model.alias_of.empty()) continue;
    ++different;
    default_ = &choices_[model.name];
  }
  const auto named = choices_.find(default_model);
  if (named != choices_.end()) {
    default_ = &named->second;
  } else if (different != 1) {
    default_ = &none_;
    none_.error = MakeError(Reason::kModelNotFound,
                            choices_.empty()
                                ? "no encoder is loaded: start the server with --model"
                                : "several models are loaded: start the server with --tei-model, "
                                  "or send the metadata castor-model with each call");
  }
}

const Choice& Models::Choose(const Call& call) const {
  const auto chosen = call.headers(kMetadata);
  if (chosen.empty()) return *default_;
  const auto found = choices_.find(chosen.front());
  return found == choices_.end() ? unknown_ : found->second;
}

std::vector<std::string> Models::Services() const {
  std::vector<std::string> names = {::tei::v1::Info::service_full_name(),
                                    ::tei::v1::Tokenize::service_full_name()};
  if (!default_->error.ok()) return names;
  const ModelInfo& model = default_->model;
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
