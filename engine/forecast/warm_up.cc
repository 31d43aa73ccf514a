#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/encoder/model.h"
#include "engine/forecast/calibration.h"
#include "engine/kernel_table.h"
#include "engine/requests/staging.h"

namespace castor {
namespace {

absl::Status Failed(const std::string& what, const absl::Status& status) {
  return MakeError(ReasonOf(status), what + " does not run: " + std::string(status.message()));
}

// Sequences of `lengths`, cut to the model's limit, with ids from its whole vocabulary.
EncodeRequest TokensOf(const std::vector<int64_t>& lengths, const ModelInfo& info) {
  TokenInput tokens;
  for (const int64_t length : lengths) {
    tokens.lengths.push_back(std::min(length, info.max_tokens));
    for (int64_t i = 0; i < tokens.lengths.back(); ++i) {
      tokens.ids.push_back(static_cast<int64_t>(tokens.ids.size()) * 997 % info.vocabulary_size);
    }
  }
  EncodeRequest request;
  request.input = std::move(tokens);
  if (info.needs_task) request.task = info.tasks.front();
  return request;
}

// The time that it computed, in microseconds.
absl::StatusOr<double> RunModel(Device& device, const ModelPtr& model, EncodeRequest request) {
  EncodeWork work = OpenEncode(std::move(request), model, Vanilla{});
  const auto prepared = PrepareEncode({}, &work);  // in one slice
  if (!prepared.ok()) return prepared.status();
  const auto cost = StageEncode(*device.host_pool(), &work);
  if (!cost.ok()) return cost.status();
  return RunAlone(device, work);
}

// Also runs the tokenizer for the first time. It is no fault of the model if its vocabulary has
// none of the words.
absl::Status RunTexts(const RunRequest& run) {
  EncodeRequest request;
  request.input = TextInput{{"a beaver builds a dam", "interest rates rose"}, {}, false};
  const absl::Status status = run(std::move(request)).status();
  return ReasonOf(status) == Reason::kInvalidField ? absl::OkStatus() : status;
}

// The offsets of TokensOf these lengths.
std::vector<int32_t> OffsetsOf(const std::vector<int64_t>& lengths, const LoadedModel& model) {
  std::vector<int32_t> offsets = {0};
  for (const int64_t length : lengths) {
    offsets.push_back(offsets.back() +
                      static_cast<int32_t>(std::min(length, model.info.max_tokens)));
  }
  return offsets;
}

// The time limit of optional runs.
struct Budget {
  const Clock& clock;
  const TimePoint end;

  bool over() const { return clock.Now() >= end; }
};

}  // namespace

absl::StatusOr<std::optional<EncoderCosts>> MeasureModel(const LoadedModel& model, int threads,
                                                         const std::function<bool()>& over,
                                                         const RunRequest& run_request) {
  constexpr double kMinShare = 0.1;   // of a run's time that is not the head's
  constexpr double kLongUs = 10'000;  // such a run varies little
  if (auto status = RunTexts(run_request); !status.ok()) return status;
  const std::vector<std::vector<int64_t>> shapes = {{8}, {5, 31, 64, 1, 19},          {32},
                                                    {1}, std::vector<int64_t>(24, 4), {256}};
  std::vector<EncoderSample> samples;
  for (size_t i = 0; i < shapes.size(); ++i) {
    std::optional<double> least;
    for (int run = 0; run < 2; ++run) {
      const bool needed = i < kEncoderTerms && run == 0;
      if (over() && !needed) break;
      EncodeRequest request = TokensOf(shapes[i], model.info);
      // Dense layers behind several poolings take rows of no other width.
      const std::vector<EncodeOutput>& outputs = model.info.outputs;
      const bool pools = outputs.empty() || outputs.front() == EncodeOutput::kPooled;
      if (pools && model.info.pooling != Pooling::kSeveral) {
        request.pooling = kAllPoolings[i % std::size(kAllPoolings)];
      }
      const auto us = run_request(std::move(request));
      if (!us.ok()) return us.status();
      least = std::min(least.value_or(*us), *us);
      if (*us > kLongUs) break;
    }
    if (!least) break;
    // ReadOutUs prices the head's work.
    const std::vector<int32_t> offsets = OffsetsOf(shapes[i], model);
    const double head_us = ReadOutUs(EncodeRequest(), model.info, offsets, threads);
    const double rest_us = std::max(*least - head_us, kMinShare * *least);
    if (rest_us <= 0) continue;
    samples.push_back({EncoderTermsOf(offsets, model.encoder->attention(Vanilla{})), rest_us});
  }
  return FitEncoder(samples, AssumedCosts(model.info, threads));
}

EncodeRequest ShortRequest(const ModelInfo& info) { return TokensOf({8}, info); }

namespace {

// Runs each kernel on two sequences that are long enough to be split among threads.
absl::Status RunKernels(Device& device, const Budget& budget) {
  const std::vector<int64_t> lengths = {64, 192};
  TrialRunner runner(device);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const KernelRow& row : kKernels) {
      if (budget.over()) return absl::OkStatus();
      const Trial trial = {DefaultKernel(row.name), lengths, lengths};
      if (!runner.Resolve(trial, dtype).ok()) continue;  // not served here, or not in this dtype
      if (auto status = runner.Run(trial, dtype).status(); !status.ok()) {
        return Failed("the kernel " + std::string(row.label) + " in " + std::string(NameOf(dtype)),
                      status);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EncoderPrices> WarmUp(Device& device, const ModelList& models, const Clock& clock,
                                     std::chrono::milliseconds limit) {
  const auto budget = [&] { return Budget{clock, clock.Now() + limit}; };
  const auto with_each_model = [&](auto&& run) {
    for (const ModelPtr& model : models.all()) {
      // CAST layers, or another name.
      if (model->encoder == nullptr || !model->info.alias_of.empty()) continue;
      const absl::Status status = Guarded([&] { return run(model); });
      if (!status.ok()) return Failed("model \"" + model->info.name + "\"", status);
    }
    return absl::OkStatus();
  };
  absl::Status status = with_each_model([&](const ModelPtr& model) {
    return RunModel(device, model, ShortRequest(model->info)).status();
  });
  if (!status.ok()) return status;
  EncoderPrices prices;
  status = with_each_model([&](const ModelPtr& model) {
    const Budget further = budget();
    const auto costs = MeasureModel(
        *model, device.info().threads, [&] { return further.over(); },
        [&](EncodeRequest request) { return RunModel(device, model, std::move(request)); });
    if (costs.ok() && *costs) prices.insert_or_assign(model->number, **costs);
    return costs.status();
  });
  if (!status.ok()) return status;
  status = Guarded([&] { return RunKernels(device, budget()); });
  if (!status.ok()) return status;
  return prices;
}

}  // namespace castor
