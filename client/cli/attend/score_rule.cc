#include "client/cli/attend/score_rule.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "client/tensor.h"

namespace castor::cli {
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
