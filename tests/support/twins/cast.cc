#include "tests/support/twins/cast.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "tests/support/twins/tensors.h"

namespace castor::attention {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// Laplace of MEGA (arXiv 2209.10655), elementwise and not normalised. erfc(-z) equals 1 + erf(z)
// but keeps its digits down the tail: 1 + erf(z) is 0 below z = -6, where clusters may still be
// decided.
double Laplace(double x) {
  const double mean = std::sqrt(0.5);
  const double deviation = std::sqrt(1 / (4 * std::numbers::pi));
  return 0.5 * std::erfc((mean - x) / (deviation * std::numbers::sqrt2));
}

// The attention function f over an axis of scaled scores.
std::vector<double> Attention(const Cast& kernel, std::vector<double> scores) {
  if (kernel.attention_function == Cast::AttentionFunction::kSoftmax) {
    return Softmax(std::move(scores));
  }
  for (double& score : scores) score = Laplace(score);
  return scores;
}

using Members = std::vector<std::vector<int64_t>>;

Members TopMembers(std::span<const double> affinities, int64_t clusters, int64_t cluster_size) {
  const int64_t tokens = static_cast<int64_t>(affinities.size()) / clusters;
  Members members;
  for (int64_t c = 0; c < clusters; ++c) {
    std::vector<int64_t> order(tokens);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return affinities[a * clusters + c] > affinities[b * clusters + c];
    });
    order.resize(cluster_size);
    std::sort(order.begin(), order.end());
    members.push_back(std::move(order));
  }
  return members;
}

// Takes pairs in order of decreasing affinity, each if its token is free and its cluster has room.
Members SingleMembers(std::span<const double> affinities, int64_t clusters, int64_t cluster_size) {
  std::vector<int64_t> pairs(affinities.size());  // token * clusters + cluster
  std::iota(pairs.begin(), pairs.end(), 0);
  // Stable: equal affinities stay in order of token, then of cluster.
  std::stable_sort(pairs.begin(), pairs.end(),
                   [&](int64_t a, int64_t b) { return affinities[a] > affinities[b]; });
  std::vector<bool> taken(affinities.size() / clusters);
  Members members(clusters);
  for (int64_t pair : pairs) {
    const int64_t token = pair / clusters;
    std::vector<int64_t>& cluster = members[pair % clusters];
    if (taken[token] || static_cast<int64_t>(cluster.size()) >= cluster_size) continue;
    taken[token] = true;
    cluster.push_back(token);
  }
  for (std::vector<int64_t>& cluster : members) std::sort(cluster.begin(), cluster.end());
  return members;
}

// One sequence; its tokens are numbered from 0 here.
class Sequence {
 public:
  Sequence(const Spec& spec, const ReferenceTensors& in, const std::vector<double>& surrogates,
           const float* gate, int64_t begin, int64_t tokens)
      : spec_(spec),
        kernel_(std::get<Cast>(spec.kernel)),
        in_(in),
        surrogates_(surrogates),
        gate_(gate),
        begin_(begin),
        tokens_(tokens),
        clusters_(spec.surrogates) {}

  void Run(std::vector<double>* output) const {
    const bool shared = kernel_.head_clustering == Cast::HeadClustering::kShared;
    const Members together = shared ? MembersOf(0, spec_.heads) : Members{};
    for (int64_t h = 0; h < spec_.heads; ++h) {
      RunHead(h, shared ? together : MembersOf(h, h + 1), output);
    }
  }

 private:
  using Row = std::vector<double>;

  double Gate(int64_t i) const { return gate_[begin_ + i]; }

  // The factor on the scores: 1 + softplus(x), or 1.
  double GateTemperature(double x) const {
    return kernel_.gate_temperature == Cast::GateTemperature::kSoftplus1 ? 1 + Softplus(x) : 1;
  }

  double ScaledDot(const double* a, const double* b) const {
    return spec_.softmax_scale * Dot(a, b, spec_.head_dim);
  }
  const double* Query(int64_t i, int64_t h) const { return in_.query(begin_ + i, h); }
  const double* Key(int64_t i, int64_t h) const { return in_.key(begin_ + i, h); }
  const double* Surrogate(int64_t c, int64_t h) const {
    return &surrogates_[(c * spec_.heads + h) * spec_.head_dim];
  }

  // f over the clusters, of the scores between `row`, a query or a key, and the surrogates.
  Row OverClusters(const double* row, int64_t h, double temperature) const {
    Row scores;
    for (int64_t c = 0; c < clusters_; ++c) {
      scores.push_back(temperature * ScaledDot(row, Surrogate(c, h)));
    }
    return Attention(kernel_, std::move(scores));
  }

  // Steps 2 and 3: the clusters, from the summed affinities of the given heads.
  Members MembersOf(int64_t head_begin, int64_t head_end) const {
    Row affinities(tokens_ * clusters_);
    for (int64_t i = 0; i < tokens_; ++i) {
      const double share = Sigmoid(Gate(i));
      for (int64_t h = head_begin; h < head_end; ++h) {
        const Row by_query = OverClusters(Query(i, h), h, 1);
        const Row by_key = OverClusters(Key(i, h), h, 1);
        for (int64_t c = 0; c < clusters_; ++c) {
          affinities[i * clusters_ + c] += share * by_query[c] + (1 - share) * by_key[c];
        }
      }
    }
    const int64_t size =
        kernel_.cluster_size > 0 ? kernel_.cluster_size : (tokens_ + clusters_ - 1) / clusters_;
    return CastMembers(affinities, clusters_, std::min(size, tokens_), kernel_.clustering);
  }

  // sum_n weights[n] * v of member n.
  Row MeanValue(const Row& weights, const std::vector<int64_t>& members, int64_t h) const {
    Row mean(spec_.value_dim);
    for (size_t n = 0; n < members.size(); ++n) {
      const double* const value = in_.value(begin_ + members[n], h);
      for (int64_t e = 0; e < spec_.value_dim; ++e) mean[e] += weights[n] * value[e];
    }
    return mean;
  }

  // Step 4: what a member sees of its own cluster.
  Row Inside(int64_t i, const std::vector<int64_t>& members, int64_t h) const {
    Row scores;
    for (int64_t j : members) scores.push_back(ScaledDot(Query(i, h), Key(j, h)));
    return MeanValue(Attention(kernel_, std::move(scores)), members, h);
  }

  // Step 5: what the other tokens see of a cluster; zero for an empty one.
  Row Summary(int64_t c, const std::vector<int64_t>& members, int64_t h) const {
    if (members.empty()) return Row(spec_.value_dim);
    Row scores;
    for (int64_t j : members) {
      scores.push_back(GateTemperature(-Gate(j)) * ScaledDot(Key(j, h), Surrogate(c, h)));
    }
    return MeanValue(Attention(kernel_, std::move(scores)), members, h);
  }

  // Step 6.
  void RunHead(int64_t h, const Members& members, std::vector<double>* output) const {
    std::vector<Row> summaries;
    for (int64_t c = 0; c < clusters_; ++c) summaries.push_back(Summary(c, members[c], h));
    for (int64_t i = 0; i < tokens_; ++i) {
      const Row weights = OverClusters(Query(i, h), h, GateTemperature(Gate(i)));
      double* const out = &(*output)[((begin_ + i) * spec_.heads + h) * spec_.value_dim];
      for (int64_t c = 0; c < clusters_; ++c) {
        const bool inside = std::binary_search(members[c].begin(), members[c].end(), i);
        const Row seen = inside ? Inside(i, members[c], h) : summaries[c];
        for (int64_t e = 0; e < spec_.value_dim; ++e) out[e] += weights[c] * seen[e];
      }
    }
  }

  const Spec& spec_;
  const Cast& kernel_;
  const ReferenceTensors& in_;
  const std::vector<double>& surrogates_;  // [clusters, heads, head_dim]
  const float* const gate_;                // [tokens] over all sequences
  const int64_t begin_;
  const int64_t tokens_;
  const int64_t clusters_;
};

}  // namespace

std::vector<std::vector<int64_t>> CastMembers(std::span<const double> affinities, int64_t clusters,
                                              int64_t cluster_size, Cast::Clustering clustering) {
  return clustering == Cast::Clustering::kTopK ? TopMembers(affinities, clusters, cluster_size)
                                               : SingleMembers(affinities, clusters, cluster_size);
}

std::vector<double> CastReference(const Spec& spec, const Problem& problem) {
  const ReferenceTensors in(spec, problem);
  const int64_t row = spec.heads * spec.head_dim;
  std::vector<double> output(problem.query_tokens() * spec.heads * spec.value_dim);
  for (int64_t s = 0; s < problem.sequences(); ++s) {
    const int64_t begin = problem.cu_seqlens_q[s];
    const int64_t tokens = problem.cu_seqlens_q[s + 1] - begin;
    const int64_t layer_bytes = spec.surrogates * row * static_cast<int64_t>(SizeOf(spec.dtype));
    const std::vector<double> surrogates =
        Doubles(spec.dtype, problem.cast.surrogates + problem.cast.layer(s) * layer_bytes,
                spec.surrogates, row, row);
    Sequence(spec, in, surrogates, problem.cast.gate, begin, tokens).Run(&output);
  }
  return output;
}

}  // namespace castor::attention
