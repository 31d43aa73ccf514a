#include "client/merge.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/tensor.h"

namespace castor::client {
namespace {

absl::Status Misfit(size_t part, const std::string& problem) {
  return absl::InvalidArgumentError("part " + std::to_string(part) + ": " + problem);
}

std::string Describe(const v1::Tensor& tensor) {
  return ShapeString(tensor) + " " + v1::DataType_Name(tensor.dtype());
}

// Whether the part is like the first one, whose output has one dimension more than its log-sum-exp.
absl::Status Check(std::span<const v1::AttendResponse> parts, size_t p) {
  const v1::Tensor& output = parts[p].output();
  const v1::Tensor& log_sum_exp = parts[p].log_sum_exp();
  if (!parts[p].has_log_sum_exp()) return Misfit(p, "has no log_sum_exp");
  std::vector<int64_t> rows = ShapeOf(output);
  if (rows.empty()) return Misfit(p, "output has no dimensions");
  rows.pop_back();
  if (log_sum_exp.dtype() != v1::FLOAT32 || ShapeOf(log_sum_exp) != rows) {
    return Misfit(p, "log_sum_exp " + Describe(log_sum_exp) + " does not belong to output " +
                         Describe(output));
  }
  const v1::Tensor& first = parts[0].output();
  if (output.dtype() != first.dtype() || ShapeOf(output) != ShapeOf(first)) {
    return Misfit(p, "output " + Describe(output) + " is not like part 0's, " + Describe(first));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::AttendResponse> MergeAttention(std::span<const v1::AttendResponse> parts) {
  if (parts.empty()) return absl::InvalidArgumentError("there are no parts");
  std::vector<std::vector<float>> logs;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (absl::Status fits = Check(parts, p); !fits.ok()) return fits;
    std::optional<std::vector<float>> log = ToFloats(parts[p].log_sum_exp());
    if (!log) return Misfit(p, "the values of log_sum_exp do not fit its shape");
    logs.push_back(*std::move(log));
  }
  const size_t rows = logs[0].size();
  std::vector<double> maxima(rows, -INFINITY);
  for (const std::vector<float>& log : logs) {
    for (size_t i = 0; i < rows; ++i) {
      if (log[i] > maxima[i]) maxima[i] = log[i];
    }
  }

  std::vector<double> weights(rows);
  std::vector<double> sums;
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::optional<std::vector<float>> output = ToFloats(parts[p].output());
    if (!output) return Misfit(p, "output has no floating-point values that fit its shape");
    if (sums.empty()) sums.resize(output->size());
    const size_t dim = rows == 0 ? 0 : output->size() / rows;
    for (size_t i = 0; i < rows; ++i) {
      if (logs[p][i] == -INFINITY) continue;
      const double weight = std::exp(logs[p][i] - maxima[i]);
      weights[i] += weight;
      for (size_t e = i * dim; e < (i + 1) * dim; ++e) sums[e] += weight * (*output)[e];
    }
  }

  const size_t dim = rows == 0 ? 0 : sums.size() / rows;
  std::vector<float> output(sums.size());
  for (size_t i = 0; i < rows; ++i) {
    logs[0][i] = static_cast<float>(maxima[i] + std::log(weights[i]));
    if (weights[i] == 0) continue;  // zeros
    for (size_t e = i * dim; e < (i + 1) * dim; ++e) {
      output[e] = static_cast<float>(sums[e] / weights[i]);
    }
  }
  v1::AttendResponse merged;
  const v1::Tensor& like = parts[0].output();
  *merged.mutable_output() = MakeTensor(output, ShapeOf(like), like.dtype());
  *merged.mutable_log_sum_exp() = MakeTensor(logs[0], ShapeOf(parts[0].log_sum_exp()));
  return merged;
}

}  // namespace castor::client
