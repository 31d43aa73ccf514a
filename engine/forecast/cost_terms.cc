#include <algorithm>
#include <cmath>

#include "engine/attention/parallel.h"
#include "engine/attention/vanilla_cpu.h"
#include "engine/attention/variants.h"
#include "engine/forecast/cost_model.h"
#include "engine/kernels/cpu/clustered/clusters.h"

namespace castor {
namespace {

using attention::Spec;

// Nanoseconds on the reference, fitted to 1,200 random problems of each kernel.
constexpr double kVanillaLaunch = 7'000;
constexpr double kOtherLaunch = 20'000;
constexpr double kWake = 5'000;    // waking the team for a stage
constexpr double kShortTask = 50;  // a tile of vanilla
constexpr double kTask = 250;      // a task of another kernel, which has areas to prepare
constexpr double kByte = 0.035;    // a byte of a tensor, which comes from memory
constexpr double kRead = 0.5;      // of that, where bytes are read and nothing is written
constexpr double kRow = 2;         // a row that is moved,
constexpr double kElement = 0.09;  // each of its elements in whole vectors,
constexpr double kTail = 0.85;     // and each of the others
constexpr double kMultiplyAdd = 0.008;
constexpr double kBlock = 0.17;     // an output's element, read and written for a block of keys
constexpr double kTopBlock = 0.38;  // the same where scores are kept for the search
constexpr double kWeight = 0.08;    // an exponential and its sum
constexpr double kCap = 0.27;       // a softcap of a score
constexpr double kBias = 0.04;      // a bias of a score
constexpr double kLaplaceWeight = 0.41;
constexpr double kRefinedWeight = 0.69;  // the weight of one of a query's own top keys
constexpr double kHash = 0.013;          // a bit and an element of a query
constexpr double kDistance = 0.05;       // the distance of a code's 64 bits to a centroid's
constexpr double kPlane = 32.5;          // an element of a hash plane, drawn by Philox
constexpr double kCluster = 30;
constexpr double kTopCluster = 200;  // a cluster with its top keys
constexpr double kGate = 6;          // a token's gate in CAST
constexpr double kCompare = 0.4;     // a step of the sorting network, for a centroid and a slot
constexpr double kMember = 4;        // a token as a candidate for one of CAST's clusters

// How kernels divide their work.
constexpr double kLanes = 16;    // elements of a vector
constexpr double kTile = 192;    // rows of a task
constexpr double kKeys = 128;    // keys between two updates of an output
constexpr double kFewest = 32;   // the least centroids of a task
constexpr double kCodes = 512;   // codes that are compared together
constexpr double kSorted = 256;  // the maximum number of slots of a sorting network
constexpr double kSearched = 8;  // comparisons with a key where there is no network
constexpr double kCastTile = 96;
constexpr double kCastPart = 256;  // queries of a part of a cluster

double& At(CostTerms& terms, CostTerm term) { return terms[static_cast<size_t>(term)]; }

double Units(double n, double unit) { return std::ceil(n / unit); }

// The time to move a row of `dim` elements.
double RowNs(double dim) { return kRow + kElement * InLanes(dim) + kTail * std::fmod(dim, kLanes); }

// Tasks that threads share before the next stage begins. Work is in nanoseconds of one thread.
struct Stage {
  double tasks = 0;
  double flops = 0;   // as given to ParallelFor
  double passes = 1;  // each pass runs as a stage of its own
  CostTerms work{};

  double& operator[](CostTerm term) { return At(work, term); }

  // Adds the work of `rows` rows in `tiles` tiles that attend to `keys` keys each: `score_dim`
  // multiply-adds for a score and `value_dim` for its part of the output.
  void AddProducts(double rows, double tiles, double keys, double score_dim, double value_dim,
                   double block = kBlock, double weight = kWeight) {
    if (rows <= 0 || keys <= 0) return;
    const double lanes = tiles * InLanes(rows / tiles);
    At(work, CostTerm::kScores) +=
        lanes * (score_dim + value_dim) * (kMultiplyAdd * keys + block * Units(keys, kKeys));
    At(work, CostTerm::kWeights) += lanes * keys * weight;
  }
};

void AddStage(const Stage& stage, int workers, CostTerms* terms) {
  double busy = 1;
  if (workers > 1 && stage.tasks > 1 && stage.flops >= attention::kWorthWakingFor) {
    busy = stage.tasks / Units(stage.tasks, workers);  // on average
    At(*terms, CostTerm::kLaunch) += kWake * stage.passes * 1e-3;
  }
  for (size_t t = 0; t < kCostTerms; ++t) (*terms)[t] += stage.work[t] / busy * 1e-3;
}

// The dimensions that all sequences of a problem share.
struct Shape {
  double heads;
  double d;
  double dv;
};
Shape ShapeOf(const Spec& spec) {
  return {static_cast<double>(spec.heads), static_cast<double>(spec.head_dim),
          static_cast<double>(spec.value_dim)};
}

// Calls add(index, queries, keys) for each sequence that has queries.
template <typename Add>
void ForEachSequence(std::span<const int32_t> q, std::span<const int32_t> k, Add&& add) {
  for (size_t s = 0; s + 1 < q.size(); ++s) {
    if (q[s + 1] == q[s]) continue;
    const auto queries = static_cast<double>(q[s + 1] - q[s]);
    const auto keys = static_cast<double>(k[s + 1] - k[s]);
    add(s, queries, keys);
  }
}

void AddVanilla(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                std::span<const int32_t> cu_seqlens_k, std::span<const attention::Place> places,
                int workers, CostTerms* terms) {
  const auto [all_heads, d, dv] = ShapeOf(spec);
  const double weight = kWeight + (spec.softcap > 0 ? kCap : 0) +
                        (spec.bias.any() || spec.key_bias_heads > 0 ? kBias : 0);
  const auto together = static_cast<double>(attention::HeadsTogether(spec));
  const double heads = all_heads / together;
  Stage stage;
  ForEachSequence(cu_seqlens_q, cu_seqlens_k, [&](size_t s, double tokens, double keys) {
    const auto* const place = places.empty() ? nullptr : &places[s];
    if (attention::HasFewRows(spec, static_cast<int64_t>(tokens), static_cast<int64_t>(keys))) {
      // Keys and values are only read, once for all heads.
      At(*terms, CostTerm::kBytes) -= (1 - kRead) * kByte * 1e-3 *
                                      static_cast<double>(SizeOf(spec.dtype)) * keys *
                                      static_cast<double>(spec.key_row() + spec.value_row());
      const double rows = tokens * all_heads;
      const double seen = SeenKeys(spec, place, tokens, keys, kernels::kFewRowsBlock / 2.0);
      const double parts = Units(seen, kernels::kFewRowsPart);
      stage[CostTerm::kScores] += rows * seen * (d + dv) * kMultiplyAdd;
      stage[CostTerm::kWeights] += rows * seen * weight;
      stage[CostTerm::kBytes] += parts * rows * (RowNs(d) + RowNs(dv));
      stage[CostTerm::kTasks] += parts * kTask;
      stage.tasks += parts * static_cast<double>(spec.kv_heads);
      stage.flops += 2 * rows * seen * (d + dv);
      return;
    }
    const double queries = tokens * together;
    const double tiles = Units(queries, kTile);
    const double tile = queries / tiles;
    const auto seen_keys = [&](double extra) {
      return SeenKeys(spec, place, queries, keys, extra);
    };
    const double seen = seen_keys(std::min(tile, kPanel) / 2);
    const double loaded = spec.window.any() ? seen_keys(tile / 2) : keys;
    stage.AddProducts(heads * queries, heads * tiles, seen, d, dv, kBlock, weight);
    stage[CostTerm::kBytes] +=
        heads * (queries * (RowNs(d) + RowNs(dv)) + tiles * loaded * (RowNs(d) + RowNs(dv)));
    stage[CostTerm::kTasks] += heads * tiles * kShortTask;
    stage.tasks += heads * tiles;
    stage.flops += 2 * heads * queries * loaded * (d + dv);
  });
  AddStage(stage, workers, terms);
}

// The assignment of queries to clusters, by Lloyd's algorithm. It ends when no query moves, which
// is soon if few queries share a centroid.
void AddClustering(const Spec& spec, const Clustered& clustering, double queries, double keys,
                   double clusters, Stage* stage) {
  const auto [heads, d, dv] = ShapeOf(spec);
  const double passes = std::min<double>(clustering.iterations + 1, 1 + Units(queries, clusters));
  stage->passes = passes;
  if (clustering.clustering == Clustered::Clustering::kHash) {
    (*stage)[CostTerm::kClusters] += heads * kCodes * Units(queries, kCodes) * clusters * passes *
                                     (clustering.bits / 64.0) * kDistance;
    stage->flops += heads * queries * (100 + 3 * clusters * clustering.iterations);
    return;
  }
  // Products of queries with centroids, and of keys with each other.
  const double measured = std::min(keys, static_cast<double>(kernels::MetricKeys(spec.head_dim)));
  (*stage)[CostTerm::kScores] +=
      heads * kMultiplyAdd *
      (passes * (InLanes(queries) * clusters * d + clusters * InLanes(d) * d) +
       measured * InLanes(d) * d);
  (*stage)[CostTerm::kBytes] += heads * (queries * (2 * passes - 1) + measured) * RowNs(d);
  stage->flops += heads * queries * (100 + 2 * d * clusters * passes);
}

void AddClustered(const Spec& spec, const Clustered& clustering,
                  std::span<const int32_t> cu_seqlens_q, std::span<const int32_t> cu_seqlens_k,
                  int workers, CostTerms* terms) {
  const auto [heads, d, dv] = ShapeOf(spec);
  const auto* const improved = std::get_if<ImprovedClustered>(&spec.kernel);
  const double groups = attention::WeighsRest(spec.kernel) ? improved->rest_groups : 0;
  const double all_heads = heads * static_cast<double>(cu_seqlens_q.size() - 1);
  Stage hash;
  Stage cluster;
  Stage attend;
  ForEachSequence(cu_seqlens_q, cu_seqlens_k, [&](size_t, double queries, double keys) {
    const double clusters = std::min<double>(clustering.clusters, queries);
    if (clustering.clustering == Clustered::Clustering::kHash) {
      hash.tasks += Units(queries, kTile);
      hash.flops += 2 * heads * queries * d * clustering.bits;
      hash[CostTerm::kTasks] += Units(queries, kTile) * kTask;
      hash[CostTerm::kClusters] +=
          heads * queries * (RowNs(d) + InLanes(clustering.bits) * d * kHash);
    }
    const auto add_clustering = [&](const Clustered& of, double rows, double others, double count) {
      if (all_heads < workers) {  // threads share the codes of a head
        Stage shared = {.tasks = Units(rows, kCodes)};
        AddClustering(spec, of, rows, others, count, &shared);
        shared.passes *= heads;
        AddStage(shared, workers, terms);
      } else {
        AddClustering(spec, of, rows, others, count, &cluster);
        cluster.passes = 1;
        cluster.tasks += heads;
        cluster[CostTerm::kTasks] += heads * kTask;
      }
    };
    add_clustering(clustering, queries, keys, clusters);
    if (groups > 1) {
      add_clustering({.iterations = 1, .clustering = Clustered::Clustering::kQuerySpace}, keys,
                     queries, std::min(groups, keys));
    }

    const double tiles = std::max(Units(clusters, kTile), std::min(Units(4.0 * workers, all_heads),
                                                                   std::floor(clusters / kFewest)));
    const double exact = improved == nullptr ? 0 : std::min<double>(improved->topk, keys);
    attend.tasks += heads * tiles;
    attend.flops += 2 * heads * (keys * clusters + queries * (exact + groups + 1)) * (d + dv);
    attend[CostTerm::kTasks] += heads * tiles * kTask;
    attend.AddProducts(heads * clusters, heads * tiles, keys, d, dv + (groups > 0 ? d : 0),
                       exact > 0 ? kTopBlock : kBlock);
    // Queries are summed into centroids, and rows written.
    attend[CostTerm::kBytes] +=
        heads * (queries * (RowNs(d) + RowNs(dv)) + tiles * keys * (RowNs(d) + RowNs(dv)));
    attend[CostTerm::kClusters] += heads * clusters * (exact > 0 ? kTopCluster : kCluster);
    if (exact == 0) return;
    const double lanes = InLanes(exact) + (groups > 0 ? InLanes(groups) : 0);
    attend[CostTerm::kBytes] +=
        heads * (clusters * (exact + groups) * (RowNs(d) + RowNs(dv)) + queries * RowNs(d));
    attend[CostTerm::kScores] +=
        heads * queries * (lanes * d + (exact + groups) * InLanes(dv)) * kMultiplyAdd;
    attend[CostTerm::kWeights] += heads * queries * lanes * kRefinedWeight;
    // A sorting network for each vector of centroids, or a search of all keys.
    const double slots = std::exp2(std::ceil(std::log2(2 * exact)));
    const double steps = std::log2(slots);
    const bool sorts = slots <= kSorted && keys >= (groups > 0 ? 1.5 : 2) * slots;
    attend[CostTerm::kSelect] +=
        heads * kCompare *
        (sorts ? tiles * InLanes(clusters / tiles) * slots * steps * (steps + 1) / 4
               : clusters * keys * kSearched);
  });
  if (hash.tasks > 0) {
    At(*terms, CostTerm::kLaunch) += clustering.bits * d * kPlane * 1e-3;
    AddStage(hash, workers, terms);
  }
  AddStage(cluster, workers, terms);
  AddStage(attend, workers, terms);
}

void AddCast(const Spec& spec, const Cast& cast, std::span<const int32_t> cu_seqlens, int workers,
             CostTerms* terms) {
  const auto [heads, d, dv] = ShapeOf(spec);
  const double clusters = static_cast<double>(std::max<int64_t>(1, spec.surrogates));
  const bool single = cast.clustering == Cast::Clustering::kSingleAssignmentTopK;
  const double clusterings = cast.head_clustering == Cast::HeadClustering::kPerHead ? heads : 1;
  const bool laplace = cast.attention_function == Cast::AttentionFunction::kLaplace;
  const double weight = laplace ? kLaplaceWeight : kWeight;
  const double row = RowNs(d);
  const double value_row = RowNs(dv);
  Stage affinities;
  Stage select;
  Stage inside;
  Stage combine;
  ForEachSequence(cu_seqlens, cu_seqlens, [&](size_t, double tokens, double) {
    const double tiles = Units(tokens, kCastTile);
    const double pairs = tokens * clusters;
    const double asked = cast.cluster_size > 0 ? cast.cluster_size : Units(tokens, clusters);
    // With a single assignment, clusters share the tokens, and may have room for more.
    const double members =
        std::min(tokens, single ? std::min(asked, Units(tokens, clusters)) : asked);

    // Scores of queries and keys with all surrogates, without outputs.
    affinities.tasks += tiles * clusterings;
    affinities.flops += heads * pairs * (4 * d + 40);
    affinities[CostTerm::kClusters] += tokens * kGate;
    affinities[CostTerm::kBytes] += 2 * heads * tokens * row;
    affinities.AddProducts(2 * heads * tokens, 2 * heads * tiles, clusters, d, 0, kBlock, weight);

    select.tasks += clusterings * (single ? 1 : clusters);
    select.flops += 10 * pairs * clusterings;
    select[CostTerm::kSelect] += pairs * clusterings * kMember;
    if (single) select[CostTerm::kClusters] += 10 * tokens * clusterings * kGate;

    // Attention within clusters: keys and values are gathered for each part of the queries.
    const double used = heads * (single ? std::min(clusters, tokens) : clusters);
    const double parts = Units(members, kCastPart);
    inside.tasks += used * parts;
    inside.flops += 2 * used * (members + 1) * members * (d + dv);
    inside[CostTerm::kBytes] += used * (1 + parts) * members * (row + value_row);
    inside.AddProducts(used * members, used * parts, members, d, dv, kBlock, weight);

    combine.tasks += heads * tiles;
    combine.flops += heads * pairs * (2 * (d + dv) + 20);
    combine[CostTerm::kBytes] += heads * tokens * (row + value_row) + used * members * value_row;
    combine.AddProducts(heads * tokens, heads * tiles, clusters, d, dv, kBlock, weight);
  });
  // All sequences share a layer's surrogates.
  At(*terms, CostTerm::kBytes) += heads * clusters * row * 1e-3;
  for (Stage* const stage : {&affinities, &select, &inside, &combine}) {
    (*stage)[CostTerm::kTasks] += stage->tasks * kTask;
    AddStage(*stage, workers, terms);
  }
}

// The mean of a number that is uniform from `from` to `to`, clamped to 0..most.
double MeanWithin(double from, double to, double most) {
  const auto integral = [most](double x) {
    const double within = std::clamp(x, 0.0, most);
    return within * within / 2 + most * std::max(0.0, x - most);
  };
  return (integral(to) - integral(from)) / (to - from);
}

}  // namespace

double InLanes(double n) { return kLanes * Units(n, kLanes); }

double SeenKeys(const Spec& spec, const attention::Place* place, double queries, double keys,
                double extra) {
  const Window& window = spec.window;
  const int64_t right = IsCausal(spec) ? 0 : window.right;
  const double first = place != nullptr ? static_cast<double>(place->shift) : keys - queries;
  const auto mean = [&](double offset) {
    return MeanWithin(first + offset, first + offset + queries, keys);
  };
  const double end = right < 0 ? keys : mean(static_cast<double>(right) + extra + 0.5);
  if (window.left < 0) return end;
  const int64_t visible = place != nullptr ? place->visible : window.always_visible;
  const double begin = mean(-static_cast<double>(window.left) - extra - 0.5);
  return std::min(keys, end - begin + static_cast<double>(visible));
}

CostTerms CostTermsOf(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                      std::span<const int32_t> cu_seqlens_k, int workers,
                      std::span<const attention::Place> places) {
  CostTerms terms{};
  const bool vanilla = std::holds_alternative<Vanilla>(spec.kernel);
  At(terms, CostTerm::kLaunch) = (vanilla ? kVanillaLaunch : kOtherLaunch) * 1e-3;
  const double q = cu_seqlens_q.empty() ? 0 : static_cast<double>(cu_seqlens_q.back());
  const double k = cu_seqlens_k.empty() ? 0 : static_cast<double>(cu_seqlens_k.back());
  const double elements =
      q * static_cast<double>(spec.heads) * static_cast<double>(spec.head_dim + spec.value_dim) +
      k * static_cast<double>(spec.key_row() + spec.value_row());
  At(terms, CostTerm::kBytes) = static_cast<double>(SizeOf(spec.dtype)) * elements * kByte * 1e-3;
  if (vanilla) {
    AddVanilla(spec, cu_seqlens_q, cu_seqlens_k, places, workers, &terms);
  } else if (const auto* cast = std::get_if<Cast>(&spec.kernel)) {
    AddCast(spec, *cast, cu_seqlens_q, workers, &terms);
  } else if (const Clustered* clustering = attention::ClusteringOf(spec.kernel)) {
    AddClustered(spec, *clustering, cu_seqlens_q, cu_seqlens_k, workers, &terms);
  }
  return terms;
}

}  // namespace castor
