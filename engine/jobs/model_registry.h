// Which models there are now. A request takes a snapshot when it is submitted and keeps its model
// to the end, so a model can be replaced or removed while requests of it still run.
//
// Thread-safe but for FreeUnused. Snapshot holds a lock for as long as it takes to copy a pointer.
//
// An encoder's weights are in the device's memory, and the last request of a removed model may end
// on any thread. LibTorch's allocators, CUDA's among them, would let that thread free them. But a
// device belongs to its engine thread (engine/device/device.h): another thread's release falls into
// the allocator's figures between which a launch measures its workspace, and unmapping hundreds of
// megabytes takes long on a thread that calls completions. So whoever drops the last handle hands
// the encoder back to the registry, and the engine thread frees it. CAST layers and what else a
// model has are the host's memory, and are freed anywhere.
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

  // The models as they are now. A set that is held keeps its models, whatever becomes of them here.
  std::shared_ptr<const ModelSet> Snapshot() const;

  // Each is seen by every Snapshot from when it returns. `model` gets a generation of its own,
  // which is returned.
  absl::StatusOr<uint64_t> Add(LoadedModel model);      // INVALID_FIELD: the name is taken
  absl::StatusOr<uint64_t> Replace(LoadedModel model);  // MODEL_NOT_FOUND: nothing has the name
  absl::Status Remove(const std::string& name);         // MODEL_NOT_FOUND

  // Removes all.
  void Clear();

  // Frees the encoders that were removed and that nobody uses any more. Engine thread only.
  void FreeUnused();

 private:
  class Unused;

  // Puts `model` in the place of the one that has its name, or beside the others.
  absl::StatusOr<uint64_t> Put(LoadedModel model, bool replaces);

  const std::shared_ptr<Unused> unused_;  // shared with every handle

  mutable Mutex mu_;
  std::shared_ptr<const ModelSet> models_ ABSL_GUARDED_BY(mu_);
  uint64_t last_generation_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace castor
