#include "client/cli/attend/exact_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "client/tensor.h"

namespace castor::cli {
namespace {

// One head's rows of keys and values: those of consecutive tokens are `stride` rows apart.
struct Keys {
  const float *key, *value;
  int64_t count, stride, head_dim, value_dim;
};

// Sets *out to softmax(scale * q . k_j) v_j over the keys; to zeros if there are none.
void AttendRow(const float* query, const Keys& keys, double scale, std::vector<double>* weights,
               std::vector<double>* out) {
  weights->assign(static_cast<size_t>(keys.count), 0);
  out->assign(static_cast<size_t>(keys.value_dim), 0);
  double greatest = -INFINITY;
  for (int64_t j = 0; j < keys.count; ++j) {
    const float* const key = keys.key + j * keys.stride * keys.head_dim;
    double score = 0;
    for (int64_t e = 0; e < keys.head_dim; ++e) score += static_cast<double>(query[e]) * key[e];
    (*weights)[j] = scale * score;
    greatest = std::max(greatest, scale * score);
  }
  double sum = 0;
  for (int64_t j = 0; j < keys.count; ++j) {
    const float* const value = keys.value + j * keys.stride * keys.value_dim;
    const double weight = std::exp((*weights)[j] - greatest);
    sum += weight;
    for (int64_t e = 0; e < keys.value_dim; ++e) (*out)[e] += weight * value[e];
  }
  for (double& element : *out) element /= std::max(sum, 1.0);  // the greatest weight is 1
}

}  // namespace

std::string FindMismatch(const v1::AttendRequest& request, const v1::AttendResponse& answer) {
  const v1::Tensor &query = request.query(), &value = request.value(), &output = answer.output();
  std::vector<int64_t> shape = client::ShapeOf(query);
  if (shape.empty() || value.shape().empty()) return "the request's tensors have no dimensions";
  const int lengths = request.key_lengths_size();
  if (lengths > 0 && lengths != request.query_lengths_size()) {
    return "the request's key_lengths and query_lengths differ in number";
  }
  shape.back() = *value.shape().rbegin();
  if (client::ShapeOf(output) != shape || output.dtype() != query.dtype()) {
    return "output is " + client::ShapeString(output) + " " + v1::DataType_Name(output.dtype()) +
           ", which does not fit the query " + client::ShapeString(query);
  }
  const auto elements = client::NumElements(shape);
  const size_t size = client::SizeOf(output.dtype()), bytes = output.raw().size();
  if (!elements || size == 0 || bytes % size != 0 ||
      bytes / size != static_cast<size_t>(*elements)) {
    return "output has " + std::to_string(bytes) + " bytes for " + client::ShapeString(output);
  }
  return "";
}

CheckResult CheckExactly(const v1::AttendRequest& request, const v1::AttendResponse& answer,
                         int64_t max_operations) {
  const auto query = client::ToFloats(request.query()).value();
  const auto key = client::ToFloats(request.key()).value();
  const auto value = client::ToFloats(request.value()).value();
  const auto output = client::ToFloats(answer.output()).value();
  const int64_t heads = request.query().shape(1), head_dim = request.query().shape(2);
  const int64_t kv_heads = request.key().shape(1), value_dim = request.value().shape(2);
  const auto& query_lengths = request.query_lengths();
  const auto& key_lengths = request.key_lengths().empty() ? query_lengths : request.key_lengths();
  const double scale = request.has_softmax_scale() ? request.softmax_scale()
                                                   : 1 / std::sqrt(static_cast<double>(head_dim));

  CheckResult result;
  double operations = 0;  // of all rows
  for (int s = 0; s < query_lengths.size(); ++s) {
    result.rows += query_lengths[s] * heads;
    operations += static_cast<double>(query_lengths[s] * heads) *
                  static_cast<double>(key_lengths[s]) * static_cast<double>(head_dim + value_dim);
  }
  // Check every stride-th row. A stride that shares no factor with the number of heads visits all
  // heads.
  auto stride = static_cast<int64_t>(
      std::ceil(std::max(1.0, operations / static_cast<double>(max_operations))));
  while (stride > 1 && std::gcd(stride, heads) != 1) ++stride;

  double difference = 0, norm = 0;
  std::vector<double> weights, exact;
  int64_t row = 0, key_begin = 0;
  for (int s = 0; s < query_lengths.size(); ++s) {
    for (int64_t i = 0; i < query_lengths[s]; ++i) {
      // Under a causal mask, the last query sees all keys.
      const int64_t visible =
          request.vanilla().causal()
              ? std::clamp<int64_t>(key_lengths[s] - query_lengths[s] + i + 1, 0, key_lengths[s])
              : key_lengths[s];
      for (int64_t h = 0; h < heads; ++h, ++row) {
        if (row % stride != 0) continue;
        const int64_t first = key_begin * kv_heads + h * kv_heads / heads;
        AttendRow(query.data() + row * head_dim,
                  {.key = key.data() + first * head_dim,
                   .value = value.data() + first * value_dim,
                   .count = visible,
                   .stride = kv_heads,
                   .head_dim = head_dim,
                   .value_dim = value_dim},
                  scale, &weights, &exact);
        ++result.rows_checked;
        const float* const given = output.data() + row * value_dim;
        for (int64_t e = 0; e < value_dim; ++e) {
          result.finite = result.finite && std::isfinite(given[e]);
          difference += (given[e] - exact[e]) * (given[e] - exact[e]);
          norm += exact[e] * exact[e];
        }
      }
    }
    key_begin += key_lengths[s];
  }
  result.relative_error = std::sqrt(norm > 0 ? difference / norm : difference);
  return result;
}

double ExactTolerance(v1::DataType dtype) {
  switch (dtype) {
    case v1::FLOAT16:
      return 2e-3;
    case v1::BFLOAT16:
      return 1.5e-2;
    default:
      return 1e-5;
  }
}

}  // namespace castor::cli
