// CreateEngine with its outside replaced: for tests that bring a device or a clock of their own, or
// that change the models of a running engine.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/attention/cost_model.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/jobs/model_registry.h"
#include "engine/scheduling/engine_loop.h"

namespace castor {

// What the engine takes from outside scheduling/.
struct EngineParts {
  DeviceFactory open_device;
  std::shared_ptr<Clock> clock = std::make_shared<SystemClock>();
  // The engine fills it when it starts and empties it when it ends.
  std::shared_ptr<ModelRegistry> models = std::make_shared<ModelRegistry>();
  std::optional<attention::CostModel> costs;  // unset: as EngineOptions says
  PassingPolicy may_pass;                     // unset: no batch passes one that runs
  bool warm_up = false;  // run models and kernels before the first request, as CreateEngine does
};

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithParts(EngineOptions options,
                                                              EngineParts parts);

}  // namespace castor
