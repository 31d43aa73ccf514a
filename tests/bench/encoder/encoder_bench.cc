// Tokens per second of a bare encoder on the CPU: no queue, no network. The argument is the number
// of texts in a batch; 0 times tokenizing alone.
//
// Needs --model=DIRECTORY and --texts=FILE (one text per line), takes --dtype=bfloat16 or int8 and
// Google Benchmark's own flags.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
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
  std::vector<encoder::Prepared> parts;
  int64_t tokens = 0;
  const size_t size = static_cast<size_t>(state.range(0));
  for (size_t begin = 0; begin < texts.size(); begin += size) {
    const auto end = texts.begin() + static_cast<int64_t>(std::min(begin + size, texts.size()));
    parts.push_back(PrepareTexts(*model, {texts.begin() + static_cast<int64_t>(begin), end}));
    tokens += parts.back().tokens();
  }
  const int64_t width = encoder::WidthOf(info, EncodeOutput::kPooled);
  std::vector<float> output(size * static_cast<size_t>(width));
  for (auto _ : state) {
    for (const encoder::Prepared& part : parts) {
      encoder::BatchItem item{
          .cu_seqlens = part.cu_seqlens, .ids = part.ids, .type_ids = part.type_ids};
      item.pooling = info.pooling;
      item.normalize = info.normalize;
      item.dimensions = width;
      item.output = output.data();
      const encoder::Batch batch{.model = model, .kernel = Vanilla{}, .items = {item}};
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
  EngineOptions options;
  options.device = "cpu";
  auto device = OpenDevice(options);
  if (!device.ok()) Die(device.status().ToString());
  auto model =
      (*device)->LoadModel({.name = "model",
                            .directory = directory,
                            .dtype = dtype == "bfloat16" ? DType::kBFloat16 : DType::kFloat32,
                            .int8 = dtype == "int8"});
  if (!model.ok()) Die(model.status().ToString());
  if (const std::optional<Int8Fidelity>& int8 = (*model)->info().int8; int8.has_value()) {
    std::fprintf(stderr, "cosine to float32: mean %.4f, least %.4f\n", int8->mean_cosine,
                 int8->least_cosine);
  }
  benchmark::RegisterBenchmark("tokenize",
                               [&](benchmark::State& state) { Tokenize(state, **model, texts); });
  benchmark::RegisterBenchmark(
      "encode", [&](benchmark::State& state) { Encode(state, **device, *model, texts); })
      ->Arg(1)
      ->Arg(8)
      ->Arg(32)
      ->Arg(128)
      ->Arg(512)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) { return castor::bench::Main(argc, argv); }
