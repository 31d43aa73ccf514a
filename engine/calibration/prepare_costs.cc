#include "engine/calibration/prepare_costs.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/attention/cost/cost_file.h"
#include "engine/attention/cost/rungs.h"
#include "engine/base/guarded.h"
#include "engine/calibration/measure_costs.h"
#include "engine/calibration/stopwatch.h"
#include "engine/kernel_table.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

// What a model is valid for: a device of this kind, its libraries, its kernels and this build, on
// one line. Identical devices have the same key.
std::string CostKey(const Device& device, const EngineOptions& options) {
  const DeviceInfo& info = device.info();
  std::string key = options.build + "; " + info.description + "; " + std::to_string(info.threads) +
                    " threads; " + info.backend;
  std::string_view last;  // adjacent rows with the same name count once
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
  for (const KernelName name : kAutomaticKernels) {
    const Trial trial = {DefaultKernel(name), Trial::kDim, {4096}, {4096}};
    const auto us = model.Predict(trial.spec(DType::kFloat32), offsets, offsets);
    if (us) info->examples.push_back({name, *us});
  }
}

// OK when the file holds a model for `key`.
absl::Status Read(const std::string& key, PreparedCosts* prepared) {
  auto read = attention::ReadCosts(prepared->info.file, key);
  if (!read.ok()) return read.status();
  prepared->model = *std::move(read);
  prepared->info.source = CostModelInfo::Source::kFile;
  return absl::OkStatus();
}

void ReadOrMeasure(Device& device, const EngineOptions& options, PreparedCosts* prepared) {
  CostModelInfo& info = prepared->info;
  info.file = options.cost_model_file;
  const std::string key = CostKey(device, options);
  bool make_file = false;
  if (!info.file.empty()) {
    const absl::Status read = Read(key, prepared);
    if (read.ok()) return;
    make_file = absl::IsNotFound(read) && options.cost_model_budget.count() > 0;
    if (!make_file) info.note = std::string(read.message());
  }
  if (options.cost_model_budget.count() == 0) return;
  MeasuredCosts measured = MeasureCosts(device, options.cost_model_budget);
  prepared->model = std::move(measured.model);
  if (!measured.complete) info.note = "there was no time to measure every kernel, or one failed";
  if (prepared->model.empty()) return;
  info.source = CostModelInfo::Source::kMeasured;
  // An incomplete model is better than none, but not good enough to share.
  if (!make_file || !measured.complete) return;
  const absl::Status written = attention::WriteCosts(info.file, prepared->model, key);
  if (absl::IsAlreadyExists(written)) {
    Read(key, prepared).IgnoreError();  // another engine was faster
  } else if (!written.ok()) {
    info.note = std::string(written.message());
  }
}

}  // namespace

PreparedCosts PrepareCosts(Device& device, const EngineOptions& options) {
  PreparedCosts prepared;
  const bool measures = options.cost_model_budget.count() > 0;
  if ((!measures && options.cost_model_file.empty()) || !HasChoice(device)) return prepared;
  const steady_clock::time_point start = steady_clock::now();
  // Failures with files or memory here must not keep an engine from starting.
  const absl::Status status = Guarded([&] {
    ReadOrMeasure(device, options, &prepared);
    return absl::OkStatus();
  });
  if (!status.ok()) prepared.info.note = std::string(status.message());
  prepared.info.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  AddExamples(prepared.model, &prepared.info);
  return prepared;
}

}  // namespace castor
