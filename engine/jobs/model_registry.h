// The models that are loaded now. A request takes a snapshot when it is submitted and keeps its
// model to the end, so a model can be replaced or removed while requests of it still run.
//
// Thread-safe except for FreeUnused. Snapshot holds a lock only to copy a pointer.
//
// An encoder's weights are in the device's memory, and the last request of a removed model may end
// on any thread. LibTorch's allocators, including CUDA's, would let that thread free them. But a
// device belongs to its engine thread (engine/device/device.h): a release on another thread would
// distort the allocator's figures from which a launch measures its workspace, and unmapping
// hundreds of megabytes would hold up a thread that calls completions. So dropping the last handle
// hands the encoder back to the registry, and the engine thread frees it. CAST layers and the rest
// of a model are in host memory, and are freed anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/jobs/models.h"

namespace castor {

class ModelRegistry {
 public:
  ModelRegistry();

  // The models as they are now. A set keeps its models alive, even when they are replaced or
  // removed here.
  std::shared_ptr<const ModelSet> Snapshot() const;

  // Every Snapshot after one of these returns sees its effect. `model` gets a new generation, which
  // is returned.
  absl::StatusOr<uint64_t> Add(LoadedModel model);      // INVALID_FIELD: the name is taken
  absl::StatusOr<uint64_t> Replace(LoadedModel model);  // MODEL_NOT_FOUND: no model has the name
  absl::Status Remove(const std::string& name);         // MODEL_NOT_FOUND

  // Removes all.
  void Clear();

  // Frees the encoders that were removed and that nobody uses any more. Engine thread only.
  void FreeUnused();

 private:
  class Unused;

  // Replaces the model of the same name with `model`, or adds it to the others.
  absl::StatusOr<uint64_t> Put(LoadedModel model, bool replaces);

  const std::shared_ptr<Unused> unused_;  // shared with every handle

  mutable Mutex mu_;
  std::shared_ptr<const ModelSet> models_ ABSL_GUARDED_BY(mu_);
  uint64_t last_generation_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace castor
