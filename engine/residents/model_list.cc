#include "engine/residents/model_list.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/encoder/text/prompts.h"

namespace castor {

ModelList::ModelList(std::vector<ModelPtr> models) : models_(std::move(models)) {
  std::ranges::sort(models_, {},
                    [](const ModelPtr& model) -> const std::string& { return model->info.name; });
  auto infos = std::make_shared<ModelInfos>();
  for (const ModelPtr& model : models_) infos->push_back(model->info);
  infos_ = std::move(infos);
  for (const ModelPtr& model : models_) {
    const encoder::Model* const lookup =
        model->encoder == nullptr ? nullptr : model->encoder->lookup();
    if (lookup == nullptr) continue;
    LoadedModel table;
    table.number = LookupNumber(model->number);
    table.info = lookup->info();
    table.info.name = model->info.name;
    table.info.alias_of = model->info.alias_of;
    table.encoder = {model, lookup};  // so that the model is not freed before it
    table.usage = model->usage;
    tables_[model->info.name] = std::make_shared<const LoadedModel>(std::move(table));
  }
}

ModelPtr ModelList::RouteOf(ModelPtr model, const EncodeRequest& request) const {
  if (model->info.lookup_task.empty() || !encoder::LooksUp(request, model->info)) return model;
  return tables_.at(model->info.name);
}

ModelPtr ModelList::Find(std::string_view name) const {
  for (const ModelPtr& model : models_) {
    if (model->info.name == name) return model;
  }
  return nullptr;
}

absl::StatusOr<ModelPtr> ModelList::FindEncoder(const std::string& name) const {
  if (name.empty()) {
    ModelPtr only;
    int encoders = 0;
    for (const ModelPtr& model : models_) {
      if (model->encoder == nullptr || !model->info.alias_of.empty()) continue;
      only = model;
      ++encoders;
    }
    if (encoders == 1) return only;
    return MakeError(Reason::kModelNotFound,
                     encoders == 0 ? "no model is loaded"
                                   : "several models are loaded: the request must name one");
  }
  ModelPtr model = Find(name);
  if (model == nullptr) {
    return MakeError(Reason::kModelNotFound, "no model is named \"" + name + "\"");
  }
  if (model->encoder != nullptr) return model;
  return MakeError(Reason::kKernelNotAvailable,
                   "model \"" + name + "\" holds CAST layers and encodes nothing");
}

absl::StatusOr<std::shared_ptr<const attention::CastLayer>> ModelList::FindCastLayer(
    std::string_view name) const {
  bool any = false;
  for (const ModelPtr& model : models_) {
    any |= !model->cast_layers.empty();
    const std::string prefix = model->info.name + "/";
    if (!name.starts_with(prefix)) continue;
    for (size_t i = 0; i < model->cast_layers.size(); ++i) {
      if (name.substr(prefix.size()) != std::to_string(i)) continue;
      const ModelUse used(model);  // counts as its last use
      return std::shared_ptr<const attention::CastLayer>(model, model->cast_layers[i].get());
    }
  }
  if (!any) return attention::NoCastLayer(name);
  return MakeError(Reason::kModelNotFound, "no CAST layer is named \"" + std::string(name) + "\"");
}

}  // namespace castor
