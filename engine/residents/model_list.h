// The models that requests find: an immutable list, which a load or an unload replaces.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/cast/cast_layer.h"
#include "engine/base/clock.h"
#include "engine/encoder/model.h"
#include "engine/engine.h"

namespace castor {

// Counts the requests that use a model, which is not unloaded for another's sake meanwhile. Any
// thread.
class ModelUsage {
 public:
  // `clock` must outlive this.
  explicit ModelUsage(const Clock& clock) : clock_(clock), last_used_(clock.Now()) {}

  void Begin() { ++users_; }
  void End() {
    last_used_ = clock_.Now();
    --users_;
  }
  int64_t users() const { return users_; }
  TimePoint last_used() const { return last_used_; }

 private:
  const Clock& clock_;
  std::atomic<int64_t> users_ = 0;
  std::atomic<TimePoint> last_used_;
};

struct LoadedModel {
  uint64_t number = 0;  // identifies its weights, from 1; never used again
  ModelInfo info;
  std::shared_ptr<const encoder::Model> encoder;  // null for a file of CAST layers
  std::vector<std::shared_ptr<const attention::CastLayer>> cast_layers;  // by index
  std::shared_ptr<ModelUsage> usage;                                     // null: not counted
};

using ModelPtr = std::shared_ptr<const LoadedModel>;

// The number of a model's table, which has batches and prices of its own.
inline uint64_t LookupNumber(uint64_t model) { return model | uint64_t{1} << 63; }

// A request's hold on its model, which stays in memory at least as long.
class ModelUse {
 public:
  ModelUse() = default;
  ModelUse(ModelPtr model) : model_(std::move(model)) {  // NOLINT: a pointer that counts
    if (model_ != nullptr && model_->usage != nullptr) model_->usage->Begin();
  }
  ~ModelUse() {
    if (model_ != nullptr && model_->usage != nullptr) model_->usage->End();
  }
  ModelUse(ModelUse&& other) noexcept : model_(std::move(other.model_)) {}
  ModelUse& operator=(ModelUse&& other) noexcept {
    model_.swap(other.model_);
    return *this;
  }

  const LoadedModel& operator*() const { return *model_; }
  const LoadedModel* operator->() const { return model_.get(); }
  // Keeps the whole model: it must not end before its weights do.
  std::shared_ptr<const encoder::Model> encoder() const { return {model_, model_->encoder.get()}; }

 private:
  ModelPtr model_;
};

class ModelList {
 public:
  ModelList() = default;
  // Sorts them. Requires that names differ.
  explicit ModelList(std::vector<ModelPtr> models);

  // The model of that name, or null.
  ModelPtr Find(std::string_view name) const;

  // The encoder of that name. MODEL_NOT_FOUND if there is no such model, or if `name` is empty and
  // there is not exactly one encoder, apart from aliases; KERNEL_NOT_AVAILABLE if the model encodes
  // nothing.
  absl::StatusOr<ModelPtr> FindEncoder(const std::string& name) const;

  // The one of `model` and its table that answers the request.
  ModelPtr RouteOf(ModelPtr model, const EncodeRequest& request) const;

  // The layer "MODEL/INDEX", which keeps its model in memory. MODEL_NOT_FOUND.
  absl::StatusOr<std::shared_ptr<const attention::CastLayer>> FindCastLayer(
      std::string_view name) const;

  const std::vector<ModelPtr>& all() const { return models_; }  // sorted by name
  std::shared_ptr<const ModelInfos> infos() const { return infos_; }

 private:
  std::vector<ModelPtr> models_;
  std::map<std::string, ModelPtr> tables_;  // by the name of their model
  std::shared_ptr<const ModelInfos> infos_ = std::make_shared<ModelInfos>();
};

}  // namespace castor
