#include "engine/calibration/prepare_costs.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/attention/automatic.h"
#include "engine/attention/cost_cache.h"
#include "engine/base/guarded.h"
#include "engine/calibration/measure_costs.h"
#include "engine/calibration/stopwatch.h"
#include "engine/kernel_table.h"

namespace castor {
namespace {

using Clock = std::chrono::steady_clock;

// The device, its libraries and this build, on one line.
std::string CacheKey(const Device& device, const EngineOptions& options) {
  const DeviceInfo& info = device.info();
  std::string key = options.build + "; " + info.name + "; " + info.description + "; " +
                    std::to_string(info.threads) + " threads; " + info.backend;
  std::string_view last;  // neighbouring rows of equal names add nothing
  for (const attention::Variant& row : device.variants()) {
    if (row.backend != last) key += "; " + std::string(row.backend);
    last = row.backend;
  }
  return key;
}

bool HasChoice(const Device& device) {
  const auto variants = device.variants();
  return std::any_of(variants.begin(), variants.end(), [](const attention::Variant& row) {
    return attention::IsApproximate(row.kernel);
  });
}

void AddExamples(const attention::CostModel& model, CostModelInfo* info) {
  const std::vector<int32_t> offsets = {0, 4096};
  for (const KernelRow& row : kKernels) {
    const Trial trial = {DefaultKernel(row.name), Trial::kDim, {4096}, {4096}};
    const auto us = model.Predict(trial.spec(DType::kFloat32), offsets, offsets);
    if (us) info->examples.push_back({row.name, *us});
  }
}

void ReadOrMeasure(Device& device, const EngineOptions& options, PreparedCosts* prepared) {
  CostModelInfo& info = prepared->info;
  const std::string key = CacheKey(device, options);
  if (!options.cost_model_cache.empty()) {
    info.file = attention::CostFile(options.cost_model_cache, key);
    auto cached = attention::ReadCosts(info.file, key);
    if (cached.ok() && !cached->empty()) {
      prepared->model = *std::move(cached);
      info.source = CostModelInfo::Source::kCached;
      return;
    }
    if (!absl::IsNotFound(cached.status())) info.note = std::string(cached.status().message());
  }
  MeasuredCosts measured = MeasureCosts(device, options.cost_model_budget);
  prepared->model = std::move(measured.model);
  if (!measured.complete) info.note = "the time did not suffice for every kernel, or one failed";
  if (prepared->model.empty()) return;
  info.source = CostModelInfo::Source::kMeasured;
  // A part is better than nothing, but not good enough for the next starts.
  if (info.file.empty() || !measured.complete) return;
  if (auto status = attention::WriteCosts(info.file, prepared->model, key); !status.ok()) {
    info.note = std::string(status.message());
  }
}

}  // namespace

PreparedCosts PrepareCosts(Device& device, const EngineOptions& options) {
  PreparedCosts prepared;
  if (options.cost_model_budget.count() == 0 || !HasChoice(device)) return prepared;
  const Clock::time_point start = Clock::now();
  // Files and memory: nothing that goes wrong here may keep an engine from starting.
  const absl::Status status = Guarded([&] {
    ReadOrMeasure(device, options, &prepared);
    return absl::OkStatus();
  });
  if (!status.ok()) prepared.info.note = std::string(status.message());
  prepared.info.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  AddExamples(prepared.model, &prepared.info);
  return prepared;
}

}  // namespace castor
