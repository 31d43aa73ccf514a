// Measures the engine's predictions of requests' device time, before and after it learns: random
// problems for every kernel and, with a model, random texts and token ids, one at a time on the
// CPU.
//
// Prints a table with a row for each kernel: the share of predictions within 25 % of the
// measurement, and the median and 90th percentile of |log(predicted / measured)|; for all problems
// by the prices alone, and for the second half after learning from the first. A problem is staged
// and run several times. The median of the runs is the measurement, and the engine learns from the
// first. The last column takes first runs as predictions of the median: the noise of a single run,
// which limits even a perfect prediction.
//   prediction_bench [--model=DIRECTORY] [--problems=N] [--seed=N] [--runs=N] [--budget=MS]
// --problems is per kernel, --runs (3) per problem.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/attention/resolve.h"
#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/encoder/model.h"
#include "engine/forecast/calibration.h"
#include "engine/forecast/forecast.h"
#include "engine/kernel_table.h"
#include "engine/loop/engine_loop.h"
#include "engine/loop/running_batch.h"
#include "engine/requests/staging.h"
#include "server/lifecycle/environment.h"
#include "tests/bench/command_line.h"
#include "tests/bench/median.h"
#include "tests/bench/prediction/random_requests.h"

namespace castor::bench {
namespace {

// Beyond this a problem is not run.
constexpr double kLongestUs = 5e5;

// Beyond this, what runs of a problem took together, it is not run again.
constexpr double kEnoughUs = 5e4;

struct Options {
  std::string model;
  int problems = 200;
  uint32_t seed = 1;
  int runs = 3;
  int budget_ms = 1000;
};

// Predicted over measured, in logarithms.
struct Errors {
  std::vector<double> logs;

  void Print() const {
    std::vector<double> sizes;
    for (const double log : logs) sizes.push_back(std::abs(log));
    std::sort(sizes.begin(), sizes.end());
    const auto within = std::count_if(logs.begin(), logs.end(), [](double log) {
      return std::exp(log) <= 1.25 && std::exp(log) >= 0.75;
    });
    const auto at = [&](double share) {
      return sizes[static_cast<size_t>(share * static_cast<double>(sizes.size() - 1))];
    };
    std::printf("  %5.1f %%  %5.3f  %5.3f",
                100.0 * static_cast<double>(within) / static_cast<double>(sizes.size()), at(0.5),
                at(0.9));
  }
};

struct KernelErrors {
  Errors prices;
  Errors learned;
  Errors first_run;
};

class Bench {
 public:
  Bench(const Options& options, Device& device, const ModelSet& models, Forecast& forecast)
      : options_(options),
        device_(device),
        models_(models),
        forecast_(forecast),
        random_(options.seed),
        requests_(random_, *device.host_pool()) {}

  // In passes over all problems, so that a run does not find what the one before left: between two
  // runs of a problem are all others.
  void RunAttention() {
    for (const KernelRow& row : kKernels) {
      std::vector<Attention> problems;
      while (static_cast<int>(problems.size()) < options_.problems) {
        const AttentionRequest request = requests_.Make(row.name);
        auto resolved = attention::Resolve(request, device_.variants(), {}, 1024);
        if (!resolved.ok()) Die(resolved.status().ToString());
        const PredictedTime base =
            forecast_.Base(resolved->spec, resolved->cu_seqlens_q, resolved->cu_seqlens_k);
        if (base.alone_us() > kLongestUs) continue;
        problems.push_back({request, *std::move(resolved), base, {}, {}});
      }
      for (int pass = 0; pass < options_.runs; ++pass) {
        for (Attention& problem : problems) Attend(&problem);
      }
      for (size_t i = 0; i < problems.size(); ++i) {
        Note(std::string(row.label), static_cast<int>(i), problems[i].base, problems[i].predicted,
             problems[i].runs);
      }
    }
  }

  void RunEncoder(const std::vector<std::string>& words) {
    const ModelPtr model = *models_.FindEncoder("");
    const int half = std::max(1, options_.problems / 2);
    for (int i = 0; i < 2 * half; ++i) Encode("encode ids", TokensFor(*model), model, i, {});
    std::vector<std::string> texts;
    for (int i = 0; i < 2 * half; ++i) {
      texts.clear();
      for (int64_t t = random_.Spread(1, 64); t > 0; --t) texts.push_back(Text(words));
      Encode("encode texts", {}, model, i, texts);
    }
  }

  void Print() const {
    std::printf("%-20s  %-22s  %-22s  %s\n", "", "prices alone", "with learning", "first run");
    for (const auto& [name, errors] : errors_) {
      std::printf("%-20s", name.c_str());
      errors.prices.Print();
      errors.learned.Print();
      errors.first_run.Print();
      std::printf("\n");
    }
  }

 private:
  struct Attention {
    AttentionRequest request;
    attention::Resolved resolved;
    PredictedTime base;
    PredictedTime predicted;
    std::vector<double> runs;
  };

  void Attend(Attention* problem) {
    if (!Again(problem->runs)) return;
    const bool first = problem->runs.empty();
    if (first) problem->predicted = forecast_.Of(Plan(), problem->resolved).time;
    JobList jobs;
    // Another thread has just written the inputs, as in the engine.
    std::thread([&] {
      auto& job = jobs.emplace_back(std::make_unique<Job>());
      auto& work = job->work.emplace<AttentionWork>();
      work.resolved = problem->resolved;
      auto status = StageAttention(problem->request, *device_.host_pool(), &work);
      if (!status.ok()) Die(status.ToString());
    }).join();
    problem->runs.push_back(RunJobs(&jobs));
    if (first) forecast_.Learn(forecast_.SampleOf(jobs, problem->runs.front()));
  }

  EncodeRequest TokensFor(const LoadedModel& model) {
    TokenInput tokens;
    const int64_t longest = std::min<int64_t>(random_.Spread(2, 256), model.info.max_tokens);
    for (int64_t s = random_.Spread(1, 64); s > 0; --s) {
      tokens.lengths.push_back(random_.Uniform(1, longest));
      for (int64_t i = 0; i < tokens.lengths.back(); ++i) {
        tokens.ids.push_back(random_.Uniform(0, model.info.vocabulary_size - 1));
      }
    }
    EncodeRequest request;
    request.input = std::move(tokens);
    return request;
  }

  std::string Text(const std::vector<std::string>& words) {
    std::string text;
    for (int64_t n = random_.Spread(1, 180); n > 0; --n) {
      text +=
          words[static_cast<size_t>(random_.Uniform(0, static_cast<int64_t>(words.size()) - 1))] +
          " ";
    }
    return text;
  }

  void Encode(const std::string& name, EncodeRequest request, const ModelPtr& model, int index,
              const std::vector<std::string>& texts) {
    if (!texts.empty()) request.input = TextInput{{texts.begin(), texts.end()}, {}, false};
    JobList jobs;
    auto& job = jobs.emplace_back(std::make_unique<Job>());
    job->operation = Operation::kEncode;
    auto& work = job->work.emplace<EncodeWork>(OpenEncode(std::move(request), model, Vanilla{}));
    const std::vector<int32_t> offsets = forecast_.ExpectedOffsets(work);
    const PredictedTime base = forecast_.Base(work, offsets);
    const PredictedTime predicted = forecast_.Of(work, offsets).time;
    if (auto done = PrepareEncode({}, &work); !done.ok()) Die(done.status().ToString());
    job->predicted = forecast_.Of(work, work.prepared.cu_seqlens).time;
    if (!texts.empty()) forecast_.LearnTexts(work);
    if (auto staged = StageEncode(*device_.host_pool(), &work); !staged.ok()) {
      Die(staged.status().ToString());
    }
    std::vector<double> runs;
    while (Again(runs)) runs.push_back(RunJobs(&jobs));
    forecast_.Learn(forecast_.SampleOf(jobs, runs.front()));
    Note(name, index, base, predicted, runs);
  }

  bool Again(const std::vector<double>& runs) const {
    return std::accumulate(runs.begin(), runs.end(), 0.0) < kEnoughUs &&
           static_cast<int>(runs.size()) < options_.runs;
  }

  double RunJobs(JobList* jobs) {
    RunningBatch batch(std::move(*jobs));
    if (auto status = batch.Start(device_, RunToEnd()); !status.ok()) Die(status.ToString());
    const auto times = batch.Wait();
    if (!times.ok()) Die(times.status().ToString());
    *jobs = std::move(batch.jobs());
    return times->compute_us;
  }

  void Note(const std::string& name, int index, const PredictedTime& base,
            const PredictedTime& predicted, const std::vector<double>& runs) {
    const double us = Median(runs);
    auto& [prices, learned, first_run] = errors_[name];
    const int problems = name.starts_with("encode") ? options_.problems / 2 * 2 : options_.problems;
    prices.logs.push_back(std::log(base.alone_us() / us));
    if (index >= problems / 2) learned.logs.push_back(std::log(predicted.alone_us() / us));
    first_run.logs.push_back(std::log(runs.front() / us));
  }

  const Options& options_;
  Device& device_;
  const ModelSet& models_;
  Forecast& forecast_;
  Random random_;
  Requests requests_;
  std::map<std::string, KernelErrors> errors_;
};

std::vector<std::string> Words() {
  return {"the",     "beaver", "builds",     "a",         "dam",       "while",   "interest",
          "rates",   "rose",   "and",        "committee", "said",      "that",    "attention",
          "over",    "long",   "sequences",  "is",        "expensive", "because", "every",
          "query",   "sees",   "all",        "keys",      "unless",    "they",    "are",
          "grouped", "by",     "similarity", "first",     "which",     "costs",   "little"};
}

Options Parse(int argc, char** argv) {
  Options options;
  const auto number = [&](const char* name, int otherwise) {
    return std::atoi(TakeFlag(name, &argc, argv, std::to_string(otherwise)).c_str());
  };
  constexpr char kNone[] = "none";
  if (const std::string model = TakeFlag("model", &argc, argv, kNone); model != kNone) {
    options.model = model;
  }
  options.problems = number("problems", options.problems);
  options.seed = static_cast<uint32_t>(number("seed", 1));
  options.runs = std::max(1, number("runs", options.runs));
  options.budget_ms = number("budget", options.budget_ms);
  if (argc > 1) Die("unknown flag " + std::string(argv[1]) + "; prediction_bench.cc lists them");
  return options;
}

int Main(int argc, char** argv) {
  server::KeepFreedMemory();
  const Options options = Parse(argc, argv);
  EngineOptions engine;
  engine.device = "cpu";
  engine.cost_model_budget = std::chrono::milliseconds(options.budget_ms);
  auto device = OpenDevice(engine);
  if (!device.ok()) Die(device.status().ToString());
  SystemClock clock;
  std::vector<LoadedModel> loaded;
  if (!options.model.empty()) {
    DeviceBudget budget;
    auto model = LoadModel(**device, {.name = "model", .directory = options.model}, budget);
    if (!model.ok()) Die(model.status().ToString());
    loaded.push_back(*std::move(model));
  }
  const ModelSet models(std::move(loaded));
  const auto encoders = WarmUp(**device, models, clock, std::chrono::seconds(1));
  if (!encoders.ok()) Die(encoders.status().ToString());
  const PreparedCosts costs = PrepareCosts(**device, engine);
  std::printf("%s, %d threads; costs measured in %.2f s%s%s\n",
              (*device)->info().description.c_str(), (*device)->info().threads, costs.info.seconds,
              costs.info.note.empty() ? "" : ", ", costs.info.note.c_str());
  Forecast forecast((*device)->variants(), (*device)->copies_tensors(), costs.model, *encoders);
  Bench bench(options, **device, models, forecast);
  bench.RunAttention();
  if (!options.model.empty()) bench.RunEncoder(Words());
  bench.Print();
  return 0;
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) { return castor::bench::Main(argc, argv); }
