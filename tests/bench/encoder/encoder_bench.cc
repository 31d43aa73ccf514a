// Tokens per second of a bare encoder on the CPU: no queue, no network. The argument is the number
// of texts in a batch; 0 times tokenizing alone.
//
// Needs --model=DIRECTORY and --texts=FILE (one text per line), takes --dtype=bfloat16 or int8 and
// Google Benchmark's own flags. With --adapters=DIR,... it times batches of 32 texts instead, with
// as many of these adapters in a batch as the second argument says.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/encoder/model.h"
#include "engine/encoder/network/batch.h"
#include "engine/encoder/text/output_types.h"
#include "tests/bench/command_line.h"

namespace castor::bench {
namespace {

encoder::Prepared PrepareTexts(const encoder::Model& model, const std::vector<std::string>& texts) {
  EncodeRequest request;
  TextInput input;
  input.texts.assign(texts.begin(), texts.end());
  request.input = std::move(input);
  absl::StatusOr<encoder::Prepared> prepared = encoder::Prepare(request, model);
  if (!prepared.ok()) Die(prepared.status().ToString());
  return *std::move(prepared);
}

void CountTokens(benchmark::State& state, int64_t tokens) {
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

void Tokenize(benchmark::State& state, const encoder::Model& model,
              const std::vector<std::string>& texts) {
  int64_t tokens = 0;
  for (auto _ : state) tokens = PrepareTexts(model, texts).tokens();
  CountTokens(state, tokens);
}

void Encode(benchmark::State& state, Device& device, std::shared_ptr<const encoder::Model> model,
            const std::vector<std::string>& texts) {
  const ModelInfo& info = model->info();
  std::vector<encoder::Prepared> parts;  // some a batch, each of one task
  int64_t tokens = 0;
  const size_t tasks = static_cast<size_t>(state.range(1));
  const size_t each = std::max<size_t>(tasks, 1);
  const size_t size = static_cast<size_t>(state.range(0)) / each;
  for (size_t begin = 0; begin < texts.size(); begin += size) {
    const auto end = texts.begin() + static_cast<int64_t>(std::min(begin + size, texts.size()));
    parts.push_back(PrepareTexts(*model, {texts.begin() + static_cast<int64_t>(begin), end}));
    tokens += parts.back().tokens();
  }
  const int64_t width = encoder::WidthOf(info, EncodeOutput::kPooled);
  std::vector<float> output(size * static_cast<size_t>(width));
  for (auto _ : state) {
    for (size_t first = 0; first < parts.size(); first += each) {
      encoder::Batch batch{.model = model, .kernel = Vanilla{}, .items = {}};
      for (size_t i = first; i < std::min(first + each, parts.size()); ++i) {
        const encoder::Prepared& part = parts[i];
        encoder::BatchItem& item = batch.items.emplace_back(encoder::BatchItem{
            .cu_seqlens = part.cu_seqlens, .ids = part.ids, .type_ids = part.type_ids});
        item.pooling = info.pooling;
        item.normalize = info.normalize;
        item.dimensions = width;
        item.output = output.data();
        if (tasks > 0) item.task = static_cast<int32_t>(i - first);
      }
      auto execution = device.Launch(batch, RunToEnd());
      if (!execution.ok()) Die(execution.status().ToString());
      if (auto times = (*execution)->Wait(); !times.ok()) Die(times.status().ToString());
    }
  }
  CountTokens(state, tokens);
}

int Main(int argc, char** argv) {
  const std::string directory = TakeFlag("model", &argc, argv);
  const std::vector<std::string> texts = ReadTexts(TakeFlag("texts", &argc, argv));
  const std::string dtype = TakeFlag("dtype", &argc, argv, "float32");
  std::vector<std::pair<std::string, std::string>> adapters;
  const std::string folders = TakeFlag("adapters", &argc, argv, "none");
  for (size_t at = 0; folders != "none" && at < folders.size();) {
    const size_t end = std::min(folders.find(',', at), folders.size());
    adapters.emplace_back("task" + std::to_string(at), folders.substr(at, end - at));
    at = end + 1;
  }
  EngineOptions options;
  options.device = "cpu";
  auto device = OpenDevice(options);
  if (!device.ok()) Die(device.status().ToString());
  auto model =
      (*device)->LoadModel({.name = "model",
                            .directory = directory,
                            .dtype = dtype == "bfloat16" ? DType::kBFloat16 : DType::kFloat32,
                            .int8 = dtype == "int8",
                            .adapters = adapters});
  if (!model.ok()) Die(model.status().ToString());
  if (const std::optional<Int8Fidelity>& int8 = (*model)->info().int8; int8.has_value()) {
    std::fprintf(stderr, "cosine to float32: mean %.4f, least %.4f\n", int8->mean_cosine,
                 int8->least_cosine);
  }
  benchmark::RegisterBenchmark("tokenize",
                               [&](benchmark::State& state) { Tokenize(state, **model, texts); });
  auto* const encode = benchmark::RegisterBenchmark(
      "encode", [&](benchmark::State& state) { Encode(state, **device, *model, texts); });
  encode->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
  if (adapters.empty()) {
    for (const int64_t size : {1, 8, 32, 128, 512}) encode->Args({size, 0});
  }
  for (const auto tasks : {size_t{0}, size_t{1}, adapters.size()}) {
    if (!adapters.empty()) encode->Args({32, static_cast<int64_t>(tasks)});
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) { return castor::bench::Main(argc, argv); }
