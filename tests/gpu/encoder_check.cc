#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/tiny_model.h"

namespace castor::gpu {
namespace {

constexpr char kFloatModel[] = "tiny-float32";
constexpr char kBFloat16Model[] = "tiny-bfloat16";

absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(const std::string& device,
                                                   const std::string& directory) {
  EngineOptions options;
  options.device = device;
  options.models = {{kFloatModel, directory, DType::kFloat32},
                    {kBFloat16Model, directory, DType::kBFloat16}};
  options.batch_delay = std::chrono::milliseconds(2);  // lets requests share batches
  return CreateEngine(options);
}

struct EncodeCase {
  std::vector<int64_t> lengths;
  EncodeOutput output = EncodeOutput::kPooled;
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
  int64_t dimensions = 0;
  size_t spans = 0;  // pooled instead of the sequences, if not 0
  uint32_t seed = 0;
};

EncodeRequest RequestFor(const EncodeCase& c, const std::string& model, const TinyModel& tiny) {
  std::mt19937 random(c.seed);
  TokenInput tokens;
  tokens.lengths = c.lengths;
  for (const int64_t length : c.lengths) {
    for (int64_t t = 0; t < length; ++t) {
      tokens.ids.push_back(static_cast<int64_t>(random() % tiny.vocabulary));
      tokens.type_ids.push_back(static_cast<int64_t>(random() % 2));
    }
  }
  EncodeRequest request;
  request.model = model;
  request.input = std::move(tokens);
  request.output = c.output;
  if (c.output == EncodeOutput::kPooled) request.pooling = c.pooling;
  request.normalize = c.normalize;
  request.dimensions = c.dimensions;
  for (size_t i = 0; i < c.spans; ++i) {
    const size_t sequence = random() % c.lengths.size();
    const int64_t length = c.lengths[sequence], begin = random() % length;
    request.spans.ranges.push_back(
        {.sequence = static_cast<int32_t>(sequence),
         .begin = begin,
         .end = begin + 1 + static_cast<int64_t>(random()) % (length - begin)});
  }
  return request;
}

// Submits all requests at once, so that they share batches. One answer each, in order.
std::vector<absl::StatusOr<EncodeResult>> EncodeAll(Engine& engine,
                                                    std::vector<EncodeRequest> requests) {
  std::vector<std::promise<absl::StatusOr<EncodeResult>>> promises(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    std::promise<absl::StatusOr<EncodeResult>>& promise = promises[i];
    const auto ticket = engine.Submit(
        std::move(requests[i]), EncodeCompletion([&promise](absl::StatusOr<EncodeResult> result) {
          promise.set_value(std::move(result));
        }));
    if (!ticket.ok()) promise.set_value(ticket.status());
  }
  std::vector<absl::StatusOr<EncodeResult>> results;
  for (auto& promise : promises) results.push_back(promise.get_future().get());
  return results;
}

// The largest difference relative to the largest value; infinite if they cannot be compared.
double Difference(const absl::StatusOr<EncodeResult>& a, const absl::StatusOr<EncodeResult>& b) {
  if (!a.ok() || !b.ok() || a->output.shape != b->output.shape) {
    return std::numeric_limits<double>::infinity();
  }
  const size_t count = a->output.data.size() / sizeof(float);
  double worst = 0;
  double top = 0;
  for (size_t i = 0; i < count; ++i) {
    const double x = a->output.data.as<float>()[i];
    const double y = b->output.data.as<float>()[i];
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(x - y));
    top = std::max(top, std::abs(y));
  }
  return worst / top;
}

std::string ErrorOf(const absl::StatusOr<EncodeResult>& result) {
  return result.ok() ? "" : ": " + std::string(result.status().message());
}

}  // namespace

void CheckEncoder(const std::string& device, uint32_t seed, Report& report) {
  report.Section("a small encoder model on " + device + " against the CPU");
  std::string directory = (std::filesystem::temp_directory_path() / "castor-XXXXXX").string();
  const TinyModel tiny;
  if (!report.Check(mkdtemp(directory.data()) != nullptr && WriteTinyModel(tiny, directory, seed),
                    "a model directory can be written")) {
    return;
  }
  const auto cpu = OpenEngine("cpu", directory);
  const auto engine = OpenEngine(device, directory);
  std::filesystem::remove_all(directory);
  if (!report.Check(cpu.ok(), "loads on the CPU: " + std::string(cpu.status().message())) ||
      !report.Check(engine.ok(),
                    "loads on " + device + ": " + std::string(engine.status().message()))) {
    return;
  }
  std::mt19937 random(seed);
  std::vector<EncodeCase> cases(30);
  for (EncodeCase& c : cases) {
    c.seed = random();
    c.lengths.resize(1 + random() % 5);
    for (int64_t& length : c.lengths) length = 1 + random() % (random() % 4 == 0 ? 500 : 40);
    c.output = random() % 4 == 0 ? EncodeOutput::kTokenEmbeddings : EncodeOutput::kPooled;
    c.pooling = kAllPoolings[random() % std::size(kAllPoolings)];
    c.normalize = random() % 2;
    c.dimensions = random() % 3 == 0 ? 64 : 0;
    if (c.output == EncodeOutput::kPooled && random() % 3 == 0) c.spans = 1 + random() % 30;
  }
  for (const auto& [model, tolerance] :
       {std::pair(kFloatModel, 1e-4), std::pair(kBFloat16Model, 0.1)}) {
    std::vector<EncodeRequest> requests, reference;
    for (const EncodeCase& c : cases) {
      requests.push_back(RequestFor(c, model, tiny));
      reference.push_back(RequestFor(c, kFloatModel, tiny));
    }
    const auto expected = EncodeAll(**cpu, std::move(reference));
    const auto results = EncodeAll(**engine, std::move(requests));
    double worst = 0;
    std::string error, backend;
    for (size_t i = 0; i < results.size(); ++i) {
      worst = std::max(worst, Difference(results[i], expected[i]));
      if (!results[i].ok()) error = ErrorOf(results[i]);
      if (results[i].ok()) backend = results[i]->report.kernel.backend;
    }
    char text[96];
    std::snprintf(text, sizeof(text), "%s on %s: difference %.1e, allowed %.1e", model,
                  backend.c_str(), worst, tolerance);
    report.Check(worst <= tolerance, text + error);
  }
}

}  // namespace castor::gpu
