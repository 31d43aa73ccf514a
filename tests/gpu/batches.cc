#include "tests/gpu/batches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <variant>

#include "tests/support/attention/elements.h"
#include "tests/support/attention/random_problem.h"

namespace castor::gpu {
namespace {

using attention::GetElement;
using attention::Problem;
using attention::SetElement;
using attention::Spec;

HostBuffer Filled(HostPool& pool, DType dtype, int64_t count, std::mt19937& random) {
  HostBuffer buffer = *pool.Allocate(count * SizeOf(dtype));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) SetElement(buffer.data(), dtype, i, normal(random));
  return buffer;
}

// One output row of one head, [value_dim], by the definition.
std::vector<double> ExactRow(const Spec& spec, const Problem& p, int64_t s, int64_t row,
                             int64_t head) {
  const int64_t first_key = p.cu_seqlens_k[s];
  const int64_t keys = p.cu_seqlens_k[s + 1] - first_key;
  const bool causal = std::get<Vanilla>(spec.kernel).causal;
  const int64_t seen = causal ? row + 1 : keys;
  const int64_t kv_head = head / spec.group();
  const int64_t query_at = (p.cu_seqlens_q[s] + row) * p.query_stride + head * spec.head_dim;
  std::vector<double> scores(seen);
  for (int64_t j = 0; j < seen; ++j) {
    const int64_t key_at = (first_key + j) * p.key_stride + kv_head * spec.head_dim;
    double dot = 0;
    for (int64_t e = 0; e < spec.head_dim; ++e) {
      dot +=
          GetElement(p.query, spec.dtype, query_at + e) * GetElement(p.key, spec.dtype, key_at + e);
    }
    scores[j] = dot * spec.softmax_scale;
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> output(spec.value_dim, 0);
  double sum = 0;
  for (int64_t j = 0; j < seen; ++j) {
    const double weight = std::exp(scores[j] - top);
    const int64_t value_at = (first_key + j) * p.value_stride + kv_head * p.value_head_stride;
    for (int64_t e = 0; e < spec.value_dim; ++e) {
      output[e] += weight * GetElement(p.value, spec.dtype, value_at + e);
    }
    sum += weight;
  }
  for (double& element : output) element /= sum;
  return output;
}

}  // namespace

StagedBatch::StagedBatch(Device& device, const Spec& spec, std::vector<RequestShape> shapes) {
  const std::shared_ptr<HostPool> pool = device.host_pool();
  batch_.spec = spec;
  staged_.reserve(shapes.size());
  for (const RequestShape& shape : shapes) {
    std::mt19937 random(shape.seed);
    Staged& staged = staged_.emplace_back();
    staged.cu_seqlens_q = attention::OffsetsOf(shape.query_lengths);
    staged.cu_seqlens_k = attention::OffsetsOf(shape.key_lengths);
    const int64_t queries = staged.cu_seqlens_q.back();
    const int64_t keys = staged.cu_seqlens_k.back();
    Problem problem;
    problem.query_stride = spec.heads * spec.head_dim;
    problem.key_stride = spec.key_row();
    problem.value_stride = spec.value_stride();
    problem.value_head_stride = spec.value_head_stride();
    problem.output_stride = spec.heads * spec.value_dim;
    staged.query = Filled(*pool, spec.dtype, queries * problem.query_stride, random);
    staged.key = Filled(*pool, spec.dtype, keys * problem.key_stride, random);
    staged.value = Filled(*pool, spec.dtype, keys * spec.value_row(), random);
    staged.output = *pool->Allocate(queries * problem.output_stride * SizeOf(spec.dtype));
    problem.query = staged.query.data();
    problem.key = staged.key.data();
    problem.value = spec.value_is_key_prefix ? problem.key : staged.value.data();
    problem.output = staged.output.data();
    if (spec.log_sum_exp) {
      staged.log_sum_exp = *pool->Allocate(queries * spec.heads * sizeof(float));
      problem.log_sum_exp = staged.log_sum_exp.as<float>();
    }
    problem.cu_seqlens_q = staged.cu_seqlens_q;
    problem.cu_seqlens_k = staged.cu_seqlens_k;
    batch_.requests.push_back(problem);
  }
  ClearOutputs();
}

absl::StatusOr<ExecutionTimes> StagedBatch::Run(Device& device) const {
  absl::StatusOr<std::unique_ptr<Execution>> execution = device.Launch(batch_, RunToEnd());
  if (!execution.ok()) return execution.status();
  return (*execution)->Wait();
}

std::vector<std::byte> StagedBatch::Output(size_t request) const {
  const HostBuffer& output = staged_[request].output;
  return {output.data(), output.data() + output.size()};
}

double StagedBatch::LogSumExpError(const StagedBatch& other) const {
  double error = 0;
  for (size_t r = 0; r < batch_.requests.size(); ++r) {
    const Problem& p = batch_.requests[r];
    for (int64_t i = 0; i < p.query_tokens() * batch_.spec.heads; ++i) {
      const double expected = other.batch_.requests[r].log_sum_exp[i];
      const double difference = std::abs(p.log_sum_exp[i] - expected);
      if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
      error = std::max(error, difference / std::max(1.0, std::abs(expected)));
    }
  }
  return error;
}

void StagedBatch::ClearOutputs() {
  // All bits set is a NaN in every type, which shows rows that were not written.
  for (Staged& staged : staged_) {
    std::memset(staged.output.data(), 0xff, staged.output.size());
    if (batch_.spec.log_sum_exp) {
      std::memset(staged.log_sum_exp.data(), 0xff, staged.log_sum_exp.size());
    }
  }
}

double StagedBatch::RelativeError(int rows, uint32_t seed) const {
  std::mt19937 random(seed);
  const Spec& spec = batch_.spec;
  double error = 0;
  double norm = 0;
  for (const Problem& p : batch_.requests) {
    for (int64_t s = 0; s < p.sequences(); ++s) {
      const int64_t length = p.cu_seqlens_q[s + 1] - p.cu_seqlens_q[s];
      for (int64_t r = 0; r < std::min<int64_t>(rows, length); ++r) {
        const int64_t row = length <= rows ? r : static_cast<int64_t>(random() % length);
        const int64_t head = random() % spec.heads;
        const std::vector<double> exact = ExactRow(spec, p, s, row, head);
        const int64_t at = (p.cu_seqlens_q[s] + row) * p.output_stride + head * spec.value_dim;
        for (int64_t e = 0; e < spec.value_dim; ++e) {
          const double difference = GetElement(p.output, spec.dtype, at + e) - exact[e];
          error += difference * difference;
          norm += exact[e] * exact[e];
        }
      }
    }
  }
  const double relative = std::sqrt(error / norm);
  return std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity();
}

}  // namespace castor::gpu
