#include "engine/calibration/warm_up.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/attention/resolve.h"
#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/calibration/stopwatch.h"
#include "engine/loop/running_batch.h"
#include "engine/requests/staging.h"
#include "engine/kernel_table.h"

namespace castor {
namespace {

absl::Status Failed(const std::string& what, const absl::Status& status) {
  return MakeError(ReasonOf(status), what + " does not run: " + std::string(status.message()));
}

absl::StatusOr<double> Run(Device& device, std::unique_ptr<Job> job) {
  JobList jobs;
  jobs.push_back(std::move(job));
  RunningBatch batch(std::move(jobs));
  if (auto status = batch.Start(device, RunToEnd()); !status.ok()) return status;
  const auto times = batch.Wait();
  if (!times.ok()) return times.status();
  return times->compute_us;
}

// Sequences of `lengths`, cut to the model's limit, with ids from all over its vocabulary.
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
  return request;
}

// The time that it computed, in microseconds.
absl::StatusOr<double> RunModel(Device& device, const ModelPtr& model, EncodeRequest request) {
  auto job = std::make_unique<Job>();
  job->operation = Operation::kEncode;
  auto& work = job->work.emplace<EncodeWork>(OpenEncode(std::move(request), model, Vanilla{}));
  const auto prepared = PrepareEncode({}, &work);  // all of it
  if (!prepared.ok()) return prepared.status();
  const auto cost = StageEncode(*device.host_pool(), &work);
  return cost.ok() ? Run(device, std::move(job)) : cost.status();
}

// Also the tokenizer's first run. If the vocabulary has none of the words, that is no fault of the
// model.
absl::Status RunTexts(Device& device, const ModelPtr& model) {
  EncodeRequest request;
  request.input = TextInput{{"a beaver builds a dam", "interest rates rose"}, {}, false};
  const absl::Status status = RunModel(device, model, std::move(request)).status();
  return ReasonOf(status) == Reason::kInvalidField ? absl::OkStatus() : status;
}

// The offsets of what TokensOf makes of these lengths, and its terms.
std::vector<int32_t> OffsetsOf(const std::vector<int64_t>& lengths, const LoadedModel& model) {
  std::vector<int32_t> offsets = {0};
  for (const int64_t length : lengths) {
    offsets.push_back(offsets.back() +
                      static_cast<int32_t>(std::min(length, model.info.max_tokens)));
  }
  return offsets;
}
encoder::CostTerms EncoderTermsOf(const std::vector<int64_t>& lengths, const LoadedModel& model) {
  return encoder::CostTermsOf(OffsetsOf(lengths, model), model.encoder->attention(Vanilla{}));
}
double ReadOutUsOf(const std::vector<int64_t>& lengths, const LoadedModel& model, int workers) {
  return encoder::ReadOutUs(
      encoder::ReadOutElements(EncodeRequest(), model.info, OffsetsOf(lengths, model)), workers);
}

// The least of a run that is not the head's.
constexpr double kLeastShare = 0.1;

// The time limit of optional runs.
struct Budget {
  const Clock& clock;
  const TimePoint end;

  bool over() const { return clock.Now() >= end; }
};

// Shapes beyond the shortest, each twice if there is time: several ragged sequences, enough of them
// to wake every thread, and what tells the terms of a model's cost apart. The faster run of each is
// a sample. The first shapes run in any case: a model without costs would be a stranger to
// admission and to the automatic kernel for good.
absl::Status RunFurther(Device& device, const ModelPtr& model, const Budget& budget,
                        std::vector<encoder::CostSample>* samples) {
  if (auto status = RunTexts(device, model); !status.ok()) return status;
  const std::vector<std::vector<int64_t>> shapes = {
      {8}, {5, 31, 64, 1, 19}, {32}, {1}, std::vector<int64_t>(24, 4), {200}, {256}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    const double read_out_us = ReadOutUsOf(shapes[i], *model, device.info().threads);
    std::optional<double> least;
    for (int run = 0; run < 2; ++run) {
      const bool needed = i < encoder::kCostTerms && run == 0;
      if (budget.over() && !needed) break;
      EncodeRequest request = TokensOf(shapes[i], model->info);
      // Dense layers behind several poolings take rows of no other width.
      if (model->info.pooling != Pooling::kSeveral) {
        request.pooling = kAllPoolings[i % std::size(kAllPoolings)];
      }
      const auto us = RunModel(device, model, std::move(request));
      if (!us.ok()) return us.status();
      least = std::min(least.value_or(*us), *us);
    }
    if (!least) return absl::OkStatus();
    // What the head took has a price of its own.
    const double rest_us = std::max(*least - read_out_us, kLeastShare * *least);
    if (rest_us > 0) samples->push_back({EncoderTermsOf(shapes[i], *model), rest_us});
  }
  return absl::OkStatus();
}

// RunFurther, and what it says about the model's cost.
absl::Status RunAndMeasure(Device& device, const ModelPtr& model, const Budget& budget,
                           ModelRegistry& models) {
  std::vector<encoder::CostSample> samples;
  if (auto status = RunFurther(device, model, budget, &samples); !status.ok()) return status;
  const encoder::CostModel assumed = encoder::AssumedCosts(model->info, device.info().threads);
  if (const auto costs = encoder::FitCosts(samples, assumed)) {
    models.SetCosts(model->generation, *costs);
  }
  return absl::OkStatus();
}

// Two sequences, long enough that the kernels split their work among threads.
class KernelProblem {
 public:
  explicit KernelProblem(HostPool& pool) : pool_(pool) {}

  absl::Status Fill(DType dtype) {
    constexpr int64_t kRow = Trial::kHeads * Trial::kDim;
    for (const auto& [buffer, elements, type] :
         {std::tuple{&tensor_, kTokens * kRow, dtype},
          std::tuple{&surrogates_, kSurrogates * kRow, dtype},
          std::tuple{&gate_, int64_t{kTokens}, DType::kFloat32}}) {
      auto memory = pool_.Allocate(static_cast<size_t>(elements) * SizeOf(type));
      if (!memory.ok()) return memory.status();
      *buffer = *std::move(memory);
      FillRandomly(type, *buffer);
    }
    dtype_ = dtype;
    return absl::OkStatus();
  }

  AttentionRequest RequestFor(KernelName kernel) const {
    const auto tensor = [](DType dtype, std::vector<int64_t> shape, const HostBuffer& buffer) {
      return TensorInput{dtype, std::move(shape), {buffer.bytes()}};
    };
    AttentionRequest request;
    request.query = tensor(dtype_, {kTokens, Trial::kHeads, Trial::kDim}, tensor_);
    request.key = request.value = request.query;
    request.query_lengths = {kTokens / 4, kTokens - kTokens / 4};
    request.kernel = DefaultKernel(kernel);
    if (auto* const cast = std::get_if<Cast>(&request.kernel)) {
      cast->surrogates = tensor(dtype_, {kSurrogates, Trial::kHeads, Trial::kDim}, surrogates_);
      cast->gate = tensor(DType::kFloat32, {kTokens}, gate_);
    }
    return request;
  }

 private:
  static constexpr int64_t kTokens = 256;
  static constexpr int64_t kSurrogates = 8;

  HostPool& pool_;
  DType dtype_ = DType::kFloat32;
  HostBuffer tensor_;
  HostBuffer surrogates_;
  HostBuffer gate_;
};

absl::Status RunKernels(Device& device, const ModelSet& models, const Budget& budget) {
  const std::shared_ptr<HostPool> pool = device.host_pool();
  KernelProblem problem(*pool);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (auto status = problem.Fill(dtype); !status.ok()) return status;
    for (const KernelRow& row : kKernels) {
      if (budget.over()) return absl::OkStatus();
      const AttentionRequest request = problem.RequestFor(row.name);
      auto resolved = attention::Resolve(request, device.variants(), models.cast_layers(),
                                         /*max_sequences=*/2);
      if (!resolved.ok()) continue;  // not served on this device, or not in this dtype
      auto job = std::make_unique<Job>();
      auto& work = job->work.emplace<AttentionWork>();
      work.resolved = *std::move(resolved);
      absl::Status staged = StageAttention(request, *pool, &work);
      if (!staged.ok()) return staged;
      if (auto status = Run(device, std::move(job)).status(); !status.ok()) {
        return Failed("the kernel " + std::string(row.label) + " in " + std::string(NameOf(dtype)),
                      status);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WarmUp(Device& device, ModelRegistry& registry, const Clock& clock,
                    std::chrono::milliseconds limit) {
  const auto budget = [&] { return Budget{clock, clock.Now() + limit}; };
  const std::shared_ptr<const ModelSet> models = registry.Snapshot();
  const auto with_each_model = [&](auto&& run) {
    for (const ModelPtr& model : models->all()) {
      if (model->encoder == nullptr) continue;  // CAST layers
      const absl::Status status = Guarded([&] { return run(model); });
      if (!status.ok()) return Failed("model \"" + model->info.name + "\"", status);
    }
    return absl::OkStatus();
  };
  absl::Status status = with_each_model([&](const ModelPtr& model) {
    return RunModel(device, model, TokensOf({8}, model->info)).status();
  });
  if (!status.ok()) return status;
  status = with_each_model(
      [&](const ModelPtr& model) { return RunAndMeasure(device, model, budget(), registry); });
  if (!status.ok()) return status;
  return RunKernels(device, *models, budget());
}

}  // namespace castor
