// CreateEngine with replaceable dependencies: for tests that bring their own device or clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/automatic/candidates.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/ledger/device_memory.h"
#include "engine/loop/engine_loop.h"

namespace castor {

// The engine's replaceable dependencies.
struct EngineParts {
  DeviceFactory open_device;
  std::shared_ptr<Clock> clock = std::make_shared<SystemClock>();
  attention::PriceOf price_of;  // the automatic kernel's; unset: as EngineOptions says
  // Unset: as predicted from measured prices. By the tokens that count against a batch's limit.
  std::function<PredictedTime(int64_t tokens)> predict;
  bool warm_up = false;  // run models and kernels before the first request, as CreateEngine does
};

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithParts(EngineOptions options,
                                                              EngineParts parts);

}  // namespace castor
