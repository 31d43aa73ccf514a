// A complete program that uses the engine without a server: two sequences of different length
// attend to themselves, the answer arrives through a callback, and the program checks a row of it.
//
//   engine_example [cpu | cuda | auto]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <future>
#include <random>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace {

constexpr int64_t kLengths[] = {5, 3};  // tokens of each sequence
constexpr int64_t kTokens = 8;
constexpr int64_t kHeads = 2;
constexpr int64_t kDim = 16;

// A packed tensor [tokens, heads, dim]: the sequences' tokens one after another, no padding.
std::vector<float> RandomTensor(unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kTokens * kHeads * kDim);
  for (float& value : values) value = normal(generator);
  return values;
}

// The request refers to the caller's memory, which Submit copies before it returns.
castor::TensorInput AsInput(const std::vector<float>& values) {
  return {castor::DType::kFloat32, {kTokens, kHeads, kDim}, {std::as_bytes(std::span(values))}};
}

size_t At(int64_t token, int64_t head, int64_t dim) {
  return static_cast<size_t>((token * kHeads + head) * kDim + dim);
}

// Exact attention of the first token's first head, over the five tokens of its own sequence.
std::vector<double> FirstRow(const std::vector<float>& query, const std::vector<float>& key,
                             const std::vector<float>& value) {
  std::vector<double> row(kDim, 0.0);
  double total = 0;
  for (int64_t token = 0; token < kLengths[0]; ++token) {
    double score = 0;
    for (int64_t e = 0; e < kDim; ++e) score += query[At(0, 0, e)] * key[At(token, 0, e)];
    const double weight = std::exp(score / std::sqrt(static_cast<double>(kDim)));
    total += weight;
    for (int64_t e = 0; e < kDim; ++e) row[e] += weight * value[At(token, 0, e)];
  }
  for (double& element : row) element /= total;
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  castor::EngineOptions options;
  options.device = argc > 1 ? argv[1] : "cpu";
  auto engine = castor::CreateEngine(options);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    return 1;
  }

  const std::vector<float> query = RandomTensor(1);
  const std::vector<float> key = RandomTensor(2);
  const std::vector<float> value = RandomTensor(3);
  castor::AttentionRequest request;
  request.query = AsInput(query);
  request.key = AsInput(key);
  request.value = AsInput(value);
  request.query_lengths.assign(std::begin(kLengths), std::end(kLengths));

  // Submit never blocks on the device; the callback runs on one of the engine's threads.
  std::promise<absl::StatusOr<castor::AttentionResult>> promise;
  auto future = promise.get_future();
  auto ticket = (*engine)->Submit(std::move(request),
                                  [&promise](absl::StatusOr<castor::AttentionResult> result) {
                                    promise.set_value(std::move(result));
                                  });
  if (!ticket.ok()) {  // refused: the callback is not called
    std::fprintf(stderr, "%s\n", ticket.status().ToString().c_str());
    return 1;
  }
  const absl::StatusOr<castor::AttentionResult> result = future.get();
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }

  const castor::ExecutionReport& report = result->report;
  std::printf("output %s on %s by %s, %.0f us of compute, batch of %d\n",
              castor::ShapeString(result->output.shape).c_str(), report.kernel.device.c_str(),
              report.kernel.backend.c_str(), report.timing.compute_us, report.batch.requests);
  const std::vector<double> expected = FirstRow(query, key, value);
  double worst = 0;
  for (int64_t e = 0; e < kDim; ++e) {
    worst = std::max(worst, std::abs(result->output.data.as<float>()[e] - expected[e]));
  }
  std::printf("greatest difference of the first row from float64: %.2g\n", worst);
  return worst < 1e-5 ? 0 : 1;
}
