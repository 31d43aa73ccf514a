#include "engine/jobs/model_registry.h"

#include <utility>

#include "engine/base/error.h"

namespace castor {

// Encoders whose last handle is gone.
class ModelRegistry::Unused {
 public:
  // Called by deleters: without memory for the pointer the process ends.
  void Add(std::shared_ptr<const encoder::Model> encoder) noexcept {
    MutexLock lock(mu_);
    encoders_.push_back(std::move(encoder));
  }

  std::vector<std::shared_ptr<const encoder::Model>> TakeAll() {
    MutexLock lock(mu_);
    return std::exchange(encoders_, {});
  }

 private:
  Mutex mu_;
  std::vector<std::shared_ptr<const encoder::Model>> encoders_ ABSL_GUARDED_BY(mu_);
};

ModelRegistry::ModelRegistry()
    : unused_(std::make_shared<Unused>()), models_(std::make_shared<ModelSet>()) {}

std::shared_ptr<const ModelSet> ModelRegistry::Snapshot() const {
  MutexLock lock(mu_);
  return models_;
}

absl::StatusOr<uint64_t> ModelRegistry::Add(LoadedModel model) {
  return Put(std::move(model), /*replaces=*/false);
}

absl::StatusOr<uint64_t> ModelRegistry::Replace(LoadedModel model) {
  return Put(std::move(model), /*replaces=*/true);
}

absl::StatusOr<uint64_t> ModelRegistry::Put(LoadedModel model, bool replaces) {
  if (model.encoder != nullptr) {
    const encoder::Model* const encoder = model.encoder.get();
    model.encoder = std::shared_ptr<const encoder::Model>(
        encoder, [kept = std::move(model.encoder), unused = unused_](
                     const encoder::Model*) mutable { unused->Add(std::move(kept)); });
  }
  auto added = std::make_shared<LoadedModel>(std::move(model));
  const std::string& name = added->info.name;

  std::shared_ptr<const ModelSet> before;  // released outside the lock
  MutexLock lock(mu_);
  before = models_;
  const ModelPtr old = before->Find(name);
  if (!replaces && old != nullptr) {
    return InvalidField("name", "a model named \"" + name + "\" is loaded already");
  }
  if (replaces && old == nullptr) {
    return MakeError(Reason::kModelNotFound, "no model is named \"" + name + "\"");
  }
  added->generation = ++last_generation_;
  std::vector<ModelPtr> models = before->all();
  std::erase(models, old);
  models.push_back(added);
  models_ = std::make_shared<ModelSet>(std::move(models));
  return added->generation;
}

absl::Status ModelRegistry::Remove(const std::string& name) {
  std::shared_ptr<const ModelSet> before;  // released outside the lock
  MutexLock lock(mu_);
  before = models_;
  const ModelPtr old = before->Find(name);
  if (old == nullptr) {
    return MakeError(Reason::kModelNotFound, "no model is named \"" + name + "\"");
  }
  std::vector<ModelPtr> models = before->all();
  std::erase(models, old);
  models_ = std::make_shared<ModelSet>(std::move(models));
  return absl::OkStatus();
}

void ModelRegistry::Clear() {
  auto none = std::make_shared<const ModelSet>();
  MutexLock lock(mu_);
  models_.swap(none);
}

void ModelRegistry::FreeUnused() { unused_->TakeAll().clear(); }

}  // namespace castor
