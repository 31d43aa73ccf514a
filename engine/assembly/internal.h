// CreateEngine with its outside replaced: for tests that bring a device, a clock or an encoder of
// their own.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/attention/cost_model.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/jobs/encoder_functions.h"
#include "engine/scheduling/engine_loop.h"

namespace castor {

// What the engine takes from outside scheduling/.
struct EngineParts {
  DeviceFactory open_device;
  EncoderFunctions encoder;
  std::shared_ptr<Clock> clock = std::make_shared<SystemClock>();
  std::optional<attention::CostModel> costs;  // unset: as EngineOptions says
  bool warm_up = false;  // run models and kernels before the first request, as CreateEngine does
};

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithParts(EngineOptions options,
                                                              EngineParts parts);

}  // namespace castor
