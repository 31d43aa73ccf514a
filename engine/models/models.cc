#include "engine/models/models.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace castor {

ModelSet::ModelSet(std::vector<LoadedModel> models) {
  std::sort(models.begin(), models.end(),
            [](const LoadedModel& a, const LoadedModel& b) { return a.info.name < b.info.name; });
  std::map<std::string, uint64_t> numbers;  // by the name that is not an alias
  for (LoadedModel& model : models) {
    const std::string& owner = model.info.alias_of.empty() ? model.info.name : model.info.alias_of;
    model.number = numbers.emplace(owner, numbers.size() + 1).first->second;
    models_.push_back(std::make_shared<const LoadedModel>(std::move(model)));
  }
  for (const ModelPtr& model : models_) {
    for (size_t i = 0; i < model->cast_layers.size(); ++i) {
      cast_layers_.Add(model->info.name + "/" + std::to_string(i), model->cast_layers[i]);
    }
  }
}

ModelPtr ModelSet::Find(const std::string& name) const {
  for (const ModelPtr& model : models_) {
    if (model->info.name == name) return model;
  }
  return nullptr;
}

absl::StatusOr<ModelPtr> ModelSet::FindEncoder(const std::string& name) const {
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

}  // namespace castor
