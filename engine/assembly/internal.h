// Shared by the files of this folder: CreateEngine with replaceable dependencies, which tests use
// too, and the engine's description of itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/automatic/candidates.h"
#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/ledger/device_memory.h"
#include "engine/loop/engine_loop.h"

namespace castor {

// The engine's replaceable dependencies.
struct EngineParts {
  DeviceFactory open_device;
  std::shared_ptr<Clock> clock = std::make_shared<SystemClock>();
  attention::PriceOf price_of;  // for the automatic kernel; unset: as EngineOptions says
  // Predicted time by the tokens that count against a batch's limit; unset: by measured prices.
  std::function<PredictedTime(int64_t tokens)> predict;
  bool warm_up = false;  // run models and kernels before the first request, as CreateEngine does
};

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithParts(EngineOptions options,
                                                              EngineParts parts);

// The device, and its kernels with the dtypes that they support at common dimensions.
EngineInfo DescribeEngine(const Device& device);

// INVALID_FIELD with the option's name if one is out of range, or if a model's name is empty or not
// unique.
absl::Status CheckOptions(const EngineOptions& options);

}  // namespace castor
