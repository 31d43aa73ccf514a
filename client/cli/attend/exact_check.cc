#include "client/cli/attend/exact_check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "client/tensor.h"

namespace castor::cli {
namespace {

// Empty if the lengths are none of these tensors, which have the same rank, 3 or 4: a server that
// has taken such a request is not to be believed.
std::vector<Sequence> SequencesOf(const v1::AttendRequest& request) {
  std::vector<Sequence> sequences;
  const v1::Tensor& query = request.query();
  const v1::Tensor& key = request.key();
  if (query.shape_size() == 4) {
    if (key.shape(0) != query.shape(0)) return {};
    for (int64_t b = 0; b < query.shape(0); ++b) {
      sequences.push_back({b * query.shape(1), query.shape(1), b * key.shape(1), key.shape(1)});
    }
    return sequences;
  }
  std::vector<int64_t> query_lengths(request.query_lengths().begin(),
                                     request.query_lengths().end());
  std::vector<int64_t> key_lengths(request.key_lengths().begin(), request.key_lengths().end());
  if (key_lengths.empty()) key_lengths = query_lengths;
  if (query_lengths.empty()) query_lengths = {query.shape(0)};
  if (key_lengths.empty()) key_lengths = {key.shape(0)};
  if (query_lengths.size() != key_lengths.size()) return {};
  int64_t query_begin = 0;
  int64_t key_begin = 0;
  for (size_t i = 0; i < query_lengths.size(); ++i) {
    const int64_t queries = query_lengths[i], keys = key_lengths[i];
    if (queries < 1 || queries > query.shape(0) - query_begin) return {};
    if (keys < 1 || keys > key.shape(0) - key_begin) return {};
    sequences.push_back({query_begin, queries, key_begin, keys});
    query_begin += queries;
    key_begin += keys;
  }
  if (query_begin != query.shape(0) || key_begin != key.shape(0)) return {};
  return sequences;
}

// What holds the values: in each row of the keys the first few, or all of a tensor of their own.
const v1::Tensor& ValuesOf(const v1::AttendRequest& request) {
  return request.value_is_key_prefix() ? request.key() : request.value();
}

// The elements of a head's value. Requires a request whose shapes fit together.
int64_t ValueDim(const v1::AttendRequest& request) {
  return request.value_is_key_prefix() ? request.value_dim() : *request.value().shape().rbegin();
}

// Whether the sequences are in tensors that belong together.
bool FitTogether(const v1::AttendRequest& request) {
  const v1::Tensor &query = request.query(), &key = request.key(), &value = ValuesOf(request);
  const int rank = query.shape_size();
  if ((rank != 3 && rank != 4) || key.shape_size() != rank || value.shape_size() != rank) {
    return false;
  }
  for (int i = 0; i + 1 < rank; ++i) {
    if (value.shape(i) != key.shape(i)) return false;
  }
  const int64_t kv_heads = key.shape(rank - 2);
  if (kv_heads < 1 || query.shape(rank - 2) % kv_heads != 0 ||
      key.shape(rank - 1) != query.shape(rank - 1)) {
    return false;
  }
  if (request.value_is_key_prefix() &&
      (request.value_dim() < 1 || request.value_dim() > key.shape(rank - 1))) {
    return false;
  }
  const std::vector<Sequence> sequences = SequencesOf(request);
  return !sequences.empty() && ScoreRule::Fits(request, sequences, query.shape(rank - 2));
}

// out = softmax(score_of(scale * q . k_j, j)) v_j over `keys` keys; k and v advance by their
// strides. Returns the log-sum-exp of the scores. Zeros and -Inf where these are all -Inf.
template <typename ScoreOf>
double AttendRow(const float* q, const float* k, const float* v, int64_t keys, int64_t head_dim,
                 int64_t value_dim, int64_t key_stride, int64_t value_stride, double scale,
                 ScoreOf score_of, std::vector<double>& weights, std::vector<double>& out) {
  weights.resize(keys);
  double greatest = -INFINITY;
  for (int64_t j = 0; j < keys; ++j) {
    double score = 0;
    for (int64_t e = 0; e < head_dim; ++e) {
      score += static_cast<double>(q[e]) * k[j * key_stride + e];
    }
    weights[j] = score_of(score * scale, j);
    greatest = std::max(greatest, weights[j]);
  }
  out.assign(value_dim, 0);
  if (greatest == -INFINITY) return greatest;
  double sum = 0;
  for (double& weight : weights) {
    weight = std::exp(weight - greatest);
    sum += weight;
  }
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t e = 0; e < value_dim; ++e) {
      out[e] += weights[j] * v[j * value_stride + e];
    }
  }
  for (double& element : out) element /= sum;
  return greatest + std::log(sum);
}

// Whether the tensor has this type and shape, and as many bytes; if not, says so.
std::string FindMisfit(const v1::Tensor& tensor, const std::string& name, v1::DataType dtype,
                       const std::vector<int64_t>& shape, const v1::Tensor& query) {
  if (client::ShapeOf(tensor) != shape || tensor.dtype() != dtype) {
    return name + " is " + client::ShapeString(tensor) + " " + v1::DataType_Name(tensor.dtype()) +
           ", which does not fit the query " + client::ShapeString(query);
  }
  const auto elements = client::NumElements(shape);
  const size_t size = client::SizeOf(dtype), bytes = tensor.raw().size();
  if (!elements || size == 0 || bytes % size != 0 ||
      bytes / size != static_cast<size_t>(*elements)) {
    return name + " has " + std::to_string(bytes) + " bytes for " + client::ShapeString(tensor);
  }
  return "";
}

}  // namespace

std::string FindMisfit(const v1::AttendRequest& request, const v1::AttendResponse& answer) {
  if (!FitTogether(request)) return "the request's tensors and lengths do not fit together";
  const v1::Tensor& query = request.query();
  std::vector<int64_t> shape = client::ShapeOf(query);
  shape.back() = ValueDim(request);
  std::string misfit = FindMisfit(answer.output(), "output", query.dtype(), shape, query);
  if (!misfit.empty() || !request.return_log_sum_exp()) return misfit;
  shape.pop_back();
  return FindMisfit(answer.log_sum_exp(), "log_sum_exp", v1::FLOAT32, shape, query);
}

std::optional<CheckResult> CheckExactly(const v1::AttendRequest& request,
                                        const v1::AttendResponse& response, int64_t max_operations,
                                        std::string* problem) {
  *problem = FindMisfit(request, response);
  if (!problem->empty()) return std::nullopt;
  const auto query = client::ToFloats(request.query());
  const auto key = client::ToFloats(request.key());
  const auto value = client::ToFloats(ValuesOf(request));
  const auto answer = client::ToFloats(response.output());
  const auto logs = client::ToFloats(response.log_sum_exp());
  if (!query || !key || !value || !answer) {
    *problem = "the request's tensors are incomplete";
    return std::nullopt;
  }
  const int rank = request.query().shape_size();
  const int64_t heads = request.query().shape(rank - 2);
  const int64_t head_dim = request.query().shape(rank - 1);
  const int64_t value_dim = ValueDim(request);
  const int64_t kv_heads = request.key().shape(rank - 2);
  const int64_t value_row = ValuesOf(request).shape(rank - 1);  // of a head
  const double scale = request.has_softmax_scale() ? request.softmax_scale()
                                                   : 1 / std::sqrt(static_cast<double>(head_dim));
  const ScoreRule rule(request, heads);

  CheckResult result;
  const std::vector<Sequence> sequences = SequencesOf(request);
  double operations = 0;  // of all rows
  for (const Sequence& sequence : sequences) {
    result.rows += sequence.queries * heads;
    operations += static_cast<double>(sequence.queries * heads) *
                  static_cast<double>(sequence.keys) * static_cast<double>(head_dim + value_dim);
  }
  // Every stride-th row. A stride that shares no factor with the number of heads visits them all.
  auto stride = static_cast<int64_t>(
      std::ceil(std::max(1.0, operations / static_cast<double>(max_operations))));
  while (stride > 1 && std::gcd(stride, heads) != 1) ++stride;

  if (request.return_log_sum_exp()) result.log_sum_exp_error = 0;

  double difference = 0;
  double norm = 0;
  std::vector<double> weights, exact;
  int64_t row = 0;  // of all, counted over queries and heads
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Sequence& sequence = sequences[s];
    const ScoreRule::Place place = rule.PlaceOf(sequence, static_cast<int64_t>(s));
    for (int64_t i = 0; i < sequence.queries; ++i) {
      for (int64_t h = 0; h < heads; ++h, ++row) {
        if (row % stride != 0) continue;
        const int64_t token = sequence.query_begin + i;
        const int64_t kv_head = h * kv_heads / heads;
        const double log_sum_exp = AttendRow(
            query->data() + (token * heads + h) * head_dim,
            key->data() + (sequence.key_begin * kv_heads + kv_head) * head_dim,
            value->data() + (sequence.key_begin * kv_heads + kv_head) * value_row, sequence.keys,
            head_dim, value_dim, kv_heads * head_dim, kv_heads * value_row, scale,
            [&](double score, int64_t j) { return rule.Of(score, sequence, place, i, j, h); },
            weights, exact);
        ++result.rows_checked;
        if (result.log_sum_exp_error) {
          const float log = (*logs)[token * heads + h];
          const bool none = log_sum_exp == -INFINITY;  // it sees no key
          result.finite = result.finite && (none ? log == log_sum_exp : std::isfinite(log));
          const double error =
              none ? 0 : std::abs(log - log_sum_exp) / std::max(1.0, std::abs(log_sum_exp));
          result.log_sum_exp_error = std::max(*result.log_sum_exp_error, error);
        }
        const float* given = answer->data() + (token * heads + h) * value_dim;
        for (int64_t e = 0; e < value_dim; ++e) {
          result.finite = result.finite && std::isfinite(given[e]);
          difference += (given[e] - exact[e]) * (given[e] - exact[e]);
          norm += exact[e] * exact[e];
        }
      }
    }
  }
  result.relative_error = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
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

namespace {

std::vector<float> FloatsOf(const v1::Tensor& tensor) {
  auto floats = client::ToFloats(tensor);
  return floats.has_value() ? *std::move(floats) : std::vector<float>{};
}

bool IsWhole(const v1::Tensor& tensor, const std::vector<int64_t>& shape) {
  return tensor.dtype() == v1::FLOAT32 && client::ShapeOf(tensor) == shape &&
         static_cast<int64_t>(FloatsOf(tensor).size()) == client::NumElements(shape).value_or(-1);
}

}  // namespace

bool ScoreRule::Fits(const v1::AttendRequest& request, const std::vector<Sequence>& sequences,
                     int64_t heads) {
  const v1::Positions& positions = request.positions();
  const auto count = static_cast<int>(sequences.size());
  for (const int given : {positions.query_size(), positions.key_size()}) {
    if (given != 0 && given != count) return false;
  }
  const int slopes = positions.alibi_slopes_size();
  if (slopes != 0 && slopes != heads) return false;
  if (positions.has_relative_bias()) {
    const std::vector<int64_t> shape = client::ShapeOf(positions.relative_bias());
    if (shape.size() != 2 || shape[1] % 2 == 0) return false;
    if (!IsWhole(positions.relative_bias(), {heads, shape[1]})) return false;
  }
  if (!request.has_key_bias()) return true;
  std::vector<int64_t> shape = client::ShapeOf(request.key());
  shape.pop_back();
  if (IsWhole(request.key_bias(), shape)) return true;
  shape.pop_back();
  return IsWhole(request.key_bias(), shape);
}

ScoreRule::ScoreRule(const v1::AttendRequest& request, int64_t heads)
    : request_(request),
      positions_(request.positions()),
      heads_(heads),
      kv_heads_(request.key().shape(request.key().shape_size() - 2)),
      left_(positions_.window().has_left() ? positions_.window().left() : -1),
      right_(positions_.window().has_right() ? positions_.window().right() : -1),
      table_(FloatsOf(positions_.relative_bias())),
      key_bias_(FloatsOf(request.key_bias())),
      bias_of_heads_(request.key_bias().shape_size() + 1 == request.key().shape_size()) {}

ScoreRule::Place ScoreRule::PlaceOf(const Sequence& sequence, int64_t index) const {
  const auto at = static_cast<int>(index);
  const int64_t key = positions_.key_size() == 0 ? 0 : positions_.key(at);
  const int64_t query =
      positions_.query_size() == 0 ? sequence.keys - sequence.queries : positions_.query(at);
  return {query - key, key};
}

bool ScoreRule::Hides(int64_t distance, int64_t key_position) const {
  if (request_.vanilla().causal() && distance > 0) return true;
  if (right_ >= 0 && distance > right_) return true;
  if (left_ < 0 || distance >= -left_) return false;
  return positions_.always_visible() == 0 || key_position >= positions_.always_visible();
}

double ScoreRule::Of(double score, const Sequence& sequence, const Place& place, int64_t i,
                     int64_t j, int64_t head) const {
  const int64_t distance = j - (i + place.shift);
  if (Hides(distance, place.first_key + j)) return -INFINITY;
  if (const double cap = request_.softcap(); cap > 0) score = cap * std::tanh(score / cap);
  if (!table_.empty()) {
    const int64_t entries = static_cast<int64_t>(table_.size()) / heads_;
    const int64_t reach = entries / 2;
    score += table_[head * entries + reach + std::clamp(distance, -reach, reach)];
  }
  if (positions_.alibi_slopes_size() > 0) {
    score -= double{positions_.alibi_slopes(static_cast<int>(head))} *
             static_cast<double>(std::abs(distance));
  }
  if (!key_bias_.empty()) {
    const int64_t token = sequence.key_begin + j;
    score += key_bias_[bias_of_heads_ ? token * kv_heads_ + head * kv_heads_ / heads_ : token];
  }
  return score;
}

}  // namespace castor::cli
