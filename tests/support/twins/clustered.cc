#include "tests/support/twins/clustered.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "tests/support/twins/random.h"
#include "tests/support/twins/tensors.h"

namespace castor::attention {
namespace {

// Draws a position from each of `count` equal strata of the sequence, so all are distinct.
std::vector<int64_t> InitialPositions(int64_t length, int64_t count, uint64_t seed) {
  std::vector<int64_t> positions;
  for (int64_t s = 0; s < count; ++s) {
    const int64_t begin = s * length / count;
    const int64_t end = (s + 1) * length / count;
    const uint64_t x0 = TwinRandom(TwinStream::kCentroid, static_cast<uint32_t>(s), 0, seed)[0];
    positions.push_back(begin + static_cast<int64_t>((x0 * (end - begin)) >> 32));
  }
  return positions;
}

// The nearest centroid of each code; of equally near ones, the lowest index.
std::vector<int32_t> Assign(std::span<const uint64_t> codes,
                            const std::vector<uint64_t>& centroids) {
  std::vector<int32_t> labels;
  for (uint64_t code : codes) {
    int32_t nearest = 0;
    int least = std::numeric_limits<int>::max();
    for (size_t c = 0; c < centroids.size(); ++c) {
      const int distance = std::popcount(code ^ centroids[c]);
      if (distance < least) {
        least = distance;
        nearest = static_cast<int32_t>(c);
      }
    }
    labels.push_back(nearest);
  }
  return labels;
}

// The majority of each bit among the members. A tie gives 0; a cluster without members keeps its
// centroid.
void Update(std::span<const uint64_t> codes, const std::vector<int32_t>& labels,
            std::vector<uint64_t>* centroids) {
  for (size_t c = 0; c < centroids->size(); ++c) {
    int64_t members = 0;
    std::vector<int64_t> ones(64);
    for (size_t i = 0; i < codes.size(); ++i) {
      if (labels[i] != static_cast<int32_t>(c)) continue;
      ++members;
      for (int t = 0; t < 64; ++t) ones[t] += (codes[i] >> t) & 1;
    }
    if (members == 0) continue;
    uint64_t code = 0;
    for (int t = 0; t < 64; ++t) {
      if (2 * ones[t] > members) code |= uint64_t{1} << t;
    }
    (*centroids)[c] = code;
  }
}

// The covariance of at most 64 keys, or 2 dim if that is more, evenly spread: [dim, dim].
std::vector<double> KeyCovariance(std::span<const double> keys, int64_t dim) {
  const auto all = static_cast<int64_t>(keys.size()) / dim;
  const int64_t count = std::min<int64_t>(all, std::max<int64_t>(64, 2 * dim));
  const auto key = [&](int64_t s) { return &keys[s * all / count * dim]; };
  std::vector<double> mean(dim);
  for (int64_t s = 0; s < count; ++s) {
    for (int64_t e = 0; e < dim; ++e) mean[e] += key(s)[e] / static_cast<double>(count);
  }
  std::vector<double> covariance(dim * dim);
  for (int64_t s = 0; s < count; ++s) {
    for (int64_t e = 0; e < dim; ++e) {
      for (int64_t f = 0; f < dim; ++f) {
        covariance[e * dim + f] +=
            (key(s)[e] - mean[e]) * (key(s)[f] - mean[f]) / static_cast<double>(count);
      }
    }
  }
  return covariance;
}

// A centroid c and M c, with the size of the terms of that.
struct Centroid {
  Centroid(std::vector<double> place, const std::vector<double>& metric)
      : place(std::move(place)), image(this->place.size()), size(this->place.size()) {
    const size_t dim = image.size();
    for (size_t e = 0; e < dim; ++e) {
      for (size_t f = 0; f < dim; ++f) {
        image[e] += metric[e * dim + f] * this->place[f];
        size[e] += std::abs(metric[e * dim + f] * this->place[f]);
      }
    }
  }

  std::vector<double> place;
  std::vector<double> image;
  std::vector<double> size;
};

// (q - c)' M (q - c) less what does not depend on c, and the size of its terms.
struct Distance {
  double value;
  double size;
};
Distance DistanceOf(const double* query, const Centroid& centroid) {
  Distance distance{};
  for (size_t e = 0; e < centroid.place.size(); ++e) {
    distance.value += (centroid.place[e] - 2 * query[e]) * centroid.image[e];
    distance.size +=
        (std::abs(centroid.place[e]) + 2 * std::abs(query[e])) * std::abs(centroid.size[e]);
  }
  return distance;
}

// The `count` keys with the greatest scores; of equal scores, the first in `order`. None whose
// score is -Inf.
std::vector<int64_t> TopKeys(const std::vector<double>& scores, std::vector<int64_t> order,
                             int64_t count) {
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<size_t>(order.size(), count));
  std::erase_if(order, [&](int64_t j) { return scores[j] == -INFINITY; });
  return order;
}

// One head of one sequence.
class Head {
 public:
  Head(const Spec& spec, const Problem& problem, const ReferenceTensors& in, int64_t sequence,
       int64_t head)
      : spec_(spec),
        problem_(problem),
        in_(in),
        head_(head),
        query_begin_(problem.cu_seqlens_q[sequence]),
        queries_(problem.cu_seqlens_q[sequence + 1] - query_begin_),
        key_begin_(problem.cu_seqlens_k[sequence]),
        keys_(problem.cu_seqlens_k[sequence + 1] - key_begin_) {}

  // The clusters' number, and each query's; `margin` as in QueryClusters.
  QueryClusters Cluster(const HashPlanes& planes) const {
    const Clustered& clustering = *ClusteringOf(spec_.kernel);
    if (clustering.clustering == Clustered::Clustering::kQuerySpace) {
      return ClusterQueries(Queries(), Keys(), spec_.head_dim, clustering);
    }
    std::vector<uint64_t> codes;
    for (int64_t i = 0; i < queries_; ++i) codes.push_back(HashCode(planes, Query(i)));
    CodeClusters clusters = ClusterCodes(codes, clustering);
    return {.labels = std::move(clusters.labels),
            .count = static_cast<int64_t>(clusters.centroids.size()),
            .updates = clusters.updates,
            .margin = std::numeric_limits<double>::infinity()};
  }

  // The groups of keys: clustered as queries are, with the covariance of the queries.
  QueryClusters Group() const {
    const auto* improved = std::get_if<ImprovedClustered>(&spec_.kernel);
    if (improved == nullptr || improved->rest_groups == 1) {
      return {.labels = std::vector<int32_t>(keys_),
              .count = 1,
              .margin = std::numeric_limits<double>::infinity()};
    }
    return ClusterQueries(
        Keys(), Queries(), spec_.head_dim,
        {.clusters = improved->rest_groups, .iterations = 1, .seed = improved->seed});
  }

  // Writes the rows of all members of cluster `c`, and their log-sum-exps.
  void Attend(const QueryClusters& clusters, const QueryClusters& groups, int32_t c,
              std::vector<double>* output, std::vector<double>* log_sum_exp) const {
    std::vector<int64_t> members;
    std::vector<double> centroid(spec_.head_dim);
    for (int64_t i = 0; i < queries_; ++i) {
      if (clusters.labels[i] != c) continue;
      members.push_back(i);
      for (int64_t e = 0; e < spec_.head_dim; ++e) centroid[e] += Query(i)[e];
    }
    if (members.empty()) return;
    for (double& element : centroid) element /= static_cast<double>(members.size());

    std::vector<double> products;
    for (int64_t j = 0; j < keys_; ++j) products.push_back(Product(centroid.data(), j));
    std::vector<double> scores;
    for (int64_t j = 0; j < keys_; ++j) scores.push_back(Score(centroid.data(), j));
    const std::vector<double> weights = Softmax(scores);
    const double shared = LogSumExp(scores);
    const auto* improved = std::get_if<ImprovedClustered>(&spec_.kernel);
    const std::vector<int64_t> top = improved == nullptr
                                         ? std::vector<int64_t>{}
                                         : TopKeys(spec_.key_bias_heads == 0 ? products : scores,
                                                   GroupAfterGroup(groups), improved->topk);
    const bool own_mass = WeighsRest(spec_.kernel);
    for (int64_t i : members) {
      double& log_sum = (*log_sum_exp)[(query_begin_ + i) * spec_.heads + head_];
      log_sum = shared;
      const std::vector<double> row = improved == nullptr ? weights
                                      : own_mass
                                          ? OwnMass(scores, top, groups, centroid, i, &log_sum)
                                          : Refine(weights, top, i);
      double* const out = &(*output)[((query_begin_ + i) * spec_.heads + head_) * spec_.value_dim];
      for (int64_t j = 0; j < keys_; ++j) {
        const double* const value = in_.value(key_begin_ + j, head_);
        for (int64_t e = 0; e < spec_.value_dim; ++e) out[e] += row[j] * value[e];
      }
    }
  }

  int64_t query_begin() const { return query_begin_; }

 private:
  const double* Query(int64_t i) const { return in_.query(query_begin_ + i, head_); }

  std::vector<double> Queries() const {
    std::vector<double> queries;
    for (int64_t i = 0; i < queries_; ++i) {
      queries.insert(queries.end(), Query(i), Query(i) + spec_.head_dim);
    }
    return queries;
  }

  std::vector<double> Keys() const {
    std::vector<double> keys;
    for (int64_t j = 0; j < keys_; ++j) {
      const double* const key = in_.key(key_begin_ + j, head_);
      keys.insert(keys.end(), key, key + spec_.head_dim);
    }
    return keys;
  }

  // The keys in the order in which the first of equals is a top key.
  std::vector<int64_t> GroupAfterGroup(const QueryClusters& groups) const {
    std::vector<int64_t> order(keys_);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return groups.labels[a] < groups.labels[b]; });
    return order;
  }

  double Product(const double* query, int64_t j) const {
    return Dot(query, in_.key(key_begin_ + j, head_), spec_.head_dim);
  }

  double Score(const double* query, int64_t j) const {
    return spec_.softmax_scale * Product(query, j) +
           KeyBiasAt(spec_, problem_, key_begin_ + j, head_);
  }

  // The weights of query i. On the top keys the sum stays as before, but the query's own scores
  // distribute it; elsewhere the centroid's weights stay.
  std::vector<double> Refine(std::vector<double> weights, const std::vector<int64_t>& top,
                             int64_t i) const {
    double mass = 0;
    std::vector<double> scores;
    for (int64_t j : top) {
      mass += weights[j];
      scores.push_back(Score(Query(i), j));
    }
    const std::vector<double> shares = Softmax(std::move(scores));
    for (size_t n = 0; n < top.size(); ++n) weights[top[n]] = mass * shares[n];
    return weights;
  }

  // The weights of query i with a mass of its own: a softmax over the top keys and for each group
  // one key more, the mean of its others, whose weight they then share as they do for the centroid,
  // whose scores are `centroids`.
  std::vector<double> OwnMass(const std::vector<double>& centroids, const std::vector<int64_t>& top,
                              const QueryClusters& groups, const std::vector<double>& centroid,
                              int64_t i, double* log_sum_exp) const {
    std::vector<int32_t> group_of = groups.labels;
    for (int64_t j : top) group_of[j] = -1;
    std::vector<double> scores;
    for (int64_t j : top) scores.push_back(Score(Query(i), j));
    std::vector<double> weights(keys_);
    for (int32_t group = 0; group < groups.count; ++group) {
      double greatest = -std::numeric_limits<double>::infinity();
      for (int64_t j = 0; j < keys_; ++j) {
        if (group_of[j] == group) greatest = std::max(greatest, centroids[j]);
      }
      double sum = 0;
      for (int64_t j = 0; j < keys_ && greatest > -INFINITY; ++j) {
        if (group_of[j] != group) continue;
        weights[j] = std::exp(centroids[j] - greatest);
        sum += weights[j];
      }
      double score = greatest + std::log(sum);  // -Inf if there is no key
      std::vector<double> mean(spec_.head_dim);
      for (int64_t j = 0; j < keys_ && sum > 0; ++j) {
        if (group_of[j] != group) continue;
        weights[j] /= sum;
        const double* const key = in_.key(key_begin_ + j, head_);
        for (int64_t e = 0; e < spec_.head_dim; ++e) mean[e] += weights[j] * key[e];
      }
      for (int64_t e = 0; e < spec_.head_dim; ++e) {
        score += spec_.softmax_scale * (Query(i)[e] - centroid[e]) * mean[e];
      }
      scores.push_back(score);
    }
    *log_sum_exp = LogSumExp(scores);
    const std::vector<double> shares = Softmax(std::move(scores));
    for (int64_t j = 0; j < keys_; ++j) {
      if (group_of[j] >= 0) weights[j] *= shares[top.size() + group_of[j]];
    }
    for (size_t n = 0; n < top.size(); ++n) weights[top[n]] = shares[n];
    return weights;
  }

  const Spec& spec_;
  const Problem& problem_;
  const ReferenceTensors& in_;
  const int64_t head_;
  const int64_t query_begin_;
  const int64_t queries_;
  const int64_t key_begin_;
  const int64_t keys_;
};

// Calls visit(head, clusters) for each head of each sequence.
template <typename Visit>
void ForEachHead(const Spec& spec, const Problem& problem, const ReferenceTensors& in,
                 Visit visit) {
  const HashPlanes planes = MakeHashPlanes(*ClusteringOf(spec.kernel), spec.head_dim);
  for (int64_t s = 0; s < problem.sequences(); ++s) {
    for (int64_t h = 0; h < spec.heads; ++h) {
      const Head head(spec, problem, in, s, h);
      visit(head, h, head.Cluster(planes));
    }
  }
}

}  // namespace

HashPlanes MakeHashPlanes(const Clustered& parameters, int64_t dim) {
  HashPlanes planes{parameters.bits, dim, {}, {}};
  for (int t = 0; t < parameters.bits; ++t) {
    const auto plane = static_cast<uint32_t>(t);
    for (int64_t e = 0; e < dim; ++e) {
      planes.normals.push_back(TwinNormal(
          TwinRandom(TwinStream::kPlane, static_cast<uint32_t>(e), plane, parameters.seed)));
    }
    planes.biases.push_back(
        parameters.hash_bias ? TwinNormal(TwinRandom(TwinStream::kBias, 0, plane, parameters.seed))
                             : 0);
  }
  return planes;
}

uint64_t HashCode(const HashPlanes& planes, const double* query) {
  uint64_t code = 0;
  for (int t = 0; t < planes.bits; ++t) {
    double product = 0;
    for (int64_t e = 0; e < planes.dim; ++e)
      product += query[e] * planes.normals[t * planes.dim + e];
    if (product > planes.biases[t]) code |= uint64_t{1} << t;
  }
  return code;
}

CodeClusters ClusterCodes(std::span<const uint64_t> codes, const Clustered& parameters) {
  CodeClusters clusters;
  const int64_t count = std::min<int64_t>(parameters.clusters, static_cast<int64_t>(codes.size()));
  for (int64_t i : InitialPositions(static_cast<int64_t>(codes.size()), count, parameters.seed)) {
    clusters.centroids.push_back(codes[i]);
  }
  clusters.labels = Assign(codes, clusters.centroids);
  while (clusters.updates < parameters.iterations) {
    Update(codes, clusters.labels, &clusters.centroids);
    ++clusters.updates;
    std::vector<int32_t> labels = Assign(codes, clusters.centroids);
    const bool settled = labels == clusters.labels;
    clusters.labels = std::move(labels);
    if (settled) break;
  }
  return clusters;
}

QueryClusters ClusterQueries(std::span<const double> queries, std::span<const double> keys,
                             int64_t dim, const Clustered& parameters) {
  const std::vector<double> metric = KeyCovariance(keys, dim);
  const auto length = static_cast<int64_t>(queries.size()) / dim;
  QueryClusters clusters;
  clusters.count = std::min<int64_t>(parameters.clusters, length);
  clusters.margin = std::numeric_limits<double>::infinity();
  std::vector<Centroid> centroids;
  for (int64_t i : InitialPositions(length, clusters.count, parameters.seed)) {
    const double* const query = &queries[i * dim];
    centroids.emplace_back(std::vector<double>(query, query + dim), metric);
  }
  const auto assign = [&] {
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < length; ++i) {
      std::vector<Distance> distances;
      for (const Centroid& centroid : centroids) {
        distances.push_back(DistanceOf(&queries[i * dim], centroid));
      }
      const auto nearest =
          std::min_element(distances.begin(), distances.end(),
                           [](const Distance& a, const Distance& b) { return a.value < b.value; });
      labels.push_back(static_cast<int32_t>(nearest - distances.begin()));
      for (int64_t c = 0; c < clusters.count; ++c) {
        if (centroids[c].place == centroids[labels.back()].place) continue;
        const double size = std::max(distances[c].size, nearest->size);
        if (size == 0) continue;  // exactly zero in every precision
        clusters.margin = std::min(clusters.margin, (distances[c].value - nearest->value) / size);
      }
    }
    return labels;
  };
  clusters.labels = assign();
  while (clusters.updates < parameters.iterations) {
    for (int64_t c = 0; c < clusters.count; ++c) {
      double members = 0;
      std::vector<double> sum(dim);
      for (int64_t i = 0; i < length; ++i) {
        if (clusters.labels[i] != c) continue;
        ++members;
        for (int64_t e = 0; e < dim; ++e) sum[e] += queries[i * dim + e];
      }
      if (members == 0) continue;
      for (double& element : sum) element /= members;
      centroids[c] = Centroid(std::move(sum), metric);
    }
    ++clusters.updates;
    std::vector<int32_t> labels = assign();
    const bool settled = labels == clusters.labels;
    clusters.labels = std::move(labels);
    if (settled) break;
  }
  return clusters;
}

double QuerySpaceMargin(const Spec& spec, const Problem& problem) {
  const ReferenceTensors in(spec, problem);
  double margin = std::numeric_limits<double>::infinity();
  ForEachHead(spec, problem, in, [&](const Head& head, int64_t, const QueryClusters& clusters) {
    margin = std::min({margin, clusters.margin, head.Group().margin});
  });
  return margin;
}

std::vector<int32_t> ClusterLabels(const Spec& spec, const Problem& problem) {
  const ReferenceTensors in(spec, problem);
  std::vector<int32_t> labels(problem.query_tokens() * spec.heads);
  ForEachHead(spec, problem, in, [&](const Head& head, int64_t h, const QueryClusters& clusters) {
    for (size_t i = 0; i < clusters.labels.size(); ++i) {
      labels[(head.query_begin() + static_cast<int64_t>(i)) * spec.heads + h] = clusters.labels[i];
    }
  });
  return labels;
}

std::vector<double> ClusteredReference(const Spec& spec, const Problem& problem,
                                       std::vector<double>* log_sum_exp) {
  const ReferenceTensors in(spec, problem);
  std::vector<double> output(problem.query_tokens() * spec.heads * spec.value_dim);
  std::vector<double> log_sums(problem.query_tokens() * spec.heads);
  ForEachHead(spec, problem, in, [&](const Head& head, int64_t, const QueryClusters& clusters) {
    const QueryClusters groups = head.Group();
    for (int64_t c = 0; c < clusters.count; ++c) {
      head.Attend(clusters, groups, static_cast<int32_t>(c), &output, &log_sums);
    }
  });
  if (log_sum_exp != nullptr) *log_sum_exp = std::move(log_sums);
  return output;
}

}  // namespace castor::attention
