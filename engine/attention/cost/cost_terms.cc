#include "engine/attention/cost/cost_terms.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/attention/parallel.h"
#include "engine/kernels/cpu/clustered/clusters.h"

namespace castor::attention {
namespace {

constexpr double kMillion = 1e6;

// How the CPU's kernels cut their work (kernels/cpu/flash.h, clusters.h, cast.h; clustered_cpu.cc,
// query_clustering.cc, cast_stages.cc). Other devices cut similarly enough: their prices are fitted
// to these terms too.
constexpr double kLanes = 16;
constexpr double kPanelLanes = 3 * kLanes;
constexpr double kTileRows = 192;
constexpr double kKeyBlock = 128;
constexpr double kCodeRange = 2048;
constexpr double kFewestCentroids = 32;
constexpr double kLeastHash = 8;
constexpr double kQueryRange = 1024;
constexpr double kNearest = 8;  // of a query and a centroid: finding the nearest, as elements
constexpr double kCastTile = 96;
constexpr double kCastPart = 256;
constexpr double kCodeBlock = 512;
constexpr double kSortedSlots = 256;

double& At(CostTerms& terms, CostTerm term) { return terms[static_cast<size_t>(term)]; }

double Units(double n, double unit) { return std::ceil(n / unit); }
double InLanes(double n) { return kLanes * Units(n, kLanes); }

// Tasks that the team shares, before the next stage begins.
struct CostStage {
  double tasks = 0;
  double together = 1;    // tasks that a worker takes at a time
  double operations = 0;  // decides whether the team is woken at all
  double longest = 0;     // operations of the longest task
  double passes = 1;      // each a stage of its own
  CostTerms work{};       // operations; fixed terms stay zero

  // `rows` rows, in `tiles` tiles, times `keys` keys each: sums over `score_dim` elements for the
  // scores and `value_dim` for the outputs.
  void AddProducts(double rows, double tiles, double keys, double score_dim, double value_dim) {
    if (rows <= 0 || keys <= 0) return;
    const double lanes = tiles * InLanes(rows / tiles);
    At(work, CostTerm::kScores) += lanes * keys * (score_dim + value_dim);
    At(work, CostTerm::kBlocks) += lanes * Units(keys, kKeyBlock) * (score_dim + value_dim);
    At(work, CostTerm::kWeights) += lanes * keys;
  }

  void Add(double count, double longest_task) {
    tasks += count;
    longest = std::max(longest, longest_task);
  }

  // Rows of `dim` elements that are moved.
  void AddRows(double rows, double dim, CostTerm elements = CostTerm::kTokens) {
    At(work, elements) += rows * InLanes(dim);
    At(work, CostTerm::kRows) += rows;
    const auto tail = static_cast<int64_t>(dim) % static_cast<int64_t>(kLanes);
    At(work, CostTerm::kTails) += rows * static_cast<double>(tail);
  }
};

// Adds a stage to a run's terms.
void AddStage(const CostStage& stage, const Team& team, CostTerms* terms) {
  const double workers = std::max(1, team.workers);
  double speed = 1;
  if (workers > 1 && stage.tasks > 1 && stage.operations >= kWorthWakingFor) {
    const double taken = Units(stage.tasks, stage.together);
    // On average; tasks that are longer than others keep one worker busy at the end.
    const double busy = std::min(taken / Units(taken, workers),
                                 stage.operations / std::max(1.0, stage.longest * stage.together));
    speed += team.gain * (busy - 1);
    At(*terms, CostTerm::kWakes) += stage.passes;
  }
  At(*terms, CostTerm::kTasks) += stage.tasks / speed;
  for (size_t t = kFixedCostTerms; t < kCostTerms; ++t) {
    (*terms)[t] += stage.work[t] / kMillion / speed;
  }
}

struct SequenceLengths {
  double queries;
  double keys;
};

SequenceLengths SequenceAt(std::span<const int32_t> q, std::span<const int32_t> k, size_t s) {
  return {static_cast<double>(q[s + 1] - q[s]), static_cast<double>(k[s + 1] - k[s])};
}

// The keys that a query sees, on average; `extra` more are computed and hidden.
double SeenKeys(const SequenceLengths& sequence, bool causal, std::optional<int64_t> window,
                double extra) {
  const auto& [queries, keys] = sequence;
  if (window.has_value()) {
    const double sides = causal ? 1 : 2;
    return std::min(keys, sides * static_cast<double>(*window) + 1 + extra);
  }
  if (!causal) return keys;
  const double ramp = std::min(queries, keys);
  const double seen = (ramp * (ramp + 1) / 2 + (queries - ramp) * keys) / queries;
  return std::min(keys, seen + extra);
}

void AddVanilla(const Spec& spec, bool causal, std::span<const int32_t> cu_seqlens_q,
                std::span<const int32_t> cu_seqlens_k, const Team& team, CostTerms* terms) {
  const auto heads = static_cast<double>(spec.heads);
  const auto d = static_cast<double>(spec.head_dim);
  const auto dv = static_cast<double>(spec.value_dim);
  // Of a mask of one side, half of a panel's or a tile's queries are computed in vain.
  const double sides = spec.window.has_value() ? 1 : 0.5;
  CostStage stage;
  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    const SequenceLengths sequence = SequenceAt(cu_seqlens_q, cu_seqlens_k, s);
    const auto& [queries, keys] = sequence;
    if (queries == 0) continue;
    const double tiles = Units(queries, kTileRows);
    const double tile = queries / tiles;
    const auto seen_with = [&](double extra) {
      return SeenKeys(sequence, causal, spec.window, sides * extra);
    };
    // A panel computes up to its last query, and a tile loads up to its own, in whole blocks.
    const double seen = seen_with(std::min(tile, kPanelLanes));
    const double loaded = seen_with(spec.window.has_value() ? tile : tile + kKeyBlock);
    const double most = spec.window.has_value() ? loaded : keys;
    stage.AddProducts(heads * queries, heads * tiles, seen, d, dv);
    stage.AddRows(heads * (queries + tiles * loaded), d);
    stage.AddRows(heads * tiles * loaded, dv);
    stage.AddRows(heads * queries, dv, CostTerm::kStores);
    stage.Add(heads * tiles, 2 * tile * most * (d + dv));
    stage.operations += 2 * heads * queries * most * (d + dv);
  }
  AddStage(stage, team, terms);
}

// Passes of Lloyd's algorithm over all codes. It ends when no code moves, which is soon where few
// codes share a centroid.
double LloydPasses(const Clustered& clustering, double queries, double clusters) {
  return std::min<double>(clustering.iterations + 1, 1 + Units(queries, clusters));
}

// Lloyd's algorithm on the queries of one head: products of queries with centroids, like scores,
// and of keys with each other.
void AddQuerySpace(const Spec& spec, double queries, double keys, double clusters, double passes,
                   CostTerms* work) {
  const auto d = static_cast<double>(spec.head_dim);
  const double measured = std::min(keys, static_cast<double>(kernels::MetricKeys(spec.head_dim)));
  CostStage head;
  At(head.work, CostTerm::kScores) =
      passes * (InLanes(queries) * clusters * (d + kNearest) + clusters * InLanes(d) * d) +
      measured * InLanes(d) * d;
  head.AddRows(queries * (2 * passes - 1) + measured, d);
  At(head.work, CostTerm::kCodes) = queries * passes;
  const auto heads = static_cast<double>(spec.heads);
  for (size_t t = 0; t < kCostTerms; ++t) (*work)[t] += heads * head.work[t];
}

void AddClustered(const Spec& spec, const Clustered& clustering, double topk,
                  std::span<const int32_t> cu_seqlens_q, std::span<const int32_t> cu_seqlens_k,
                  const Team& team, CostTerms* terms) {
  const auto heads = static_cast<double>(spec.heads);
  const auto d = static_cast<double>(spec.head_dim);
  const auto dv = static_cast<double>(spec.value_dim);
  const double bits = clustering.bits;
  const double workers = std::max(1, team.workers);
  const double all_heads = heads * static_cast<double>(cu_seqlens_q.size() - 1);
  const bool head_by_head = all_heads < workers;  // then a head's codes are shared
  const bool hashes = clustering.clustering == Clustered::Clustering::kHash;
  const auto* improved = std::get_if<ImprovedClustered>(&spec.kernel);
  const bool own_mass =
      improved != nullptr && improved->rest_mass == ImprovedClustered::RestMass::kQuery;
  CostStage hash;
  CostStage cluster;
  CostStage attend;
  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    const auto [queries, keys] = SequenceAt(cu_seqlens_q, cu_seqlens_k, s);
    if (queries == 0) continue;
    const double clusters = std::min<double>(clustering.clusters, queries);

    const double passes = LloydPasses(clustering, queries, clusters);
    const double assignment = queries * clusters * (hashes ? 3 : 2 * d);  // operations of a pass
    CostTerms codes{};
    if (hashes) {
      hash.tasks += Units(queries, kTileRows);
      hash.operations += 2 * heads * queries * d * bits;
      hash.AddRows(heads * queries, d);
      // Short rows take longer than their elements.
      At(hash.work, CostTerm::kHash) += heads * queries * InLanes(bits) * (d + kLeastHash);
      At(codes, CostTerm::kLloyd) =
          heads * kCodeBlock * Units(queries, kCodeBlock) * clusters * (bits / 64) * passes;
      At(codes, CostTerm::kCodes) = heads * queries * passes;
    } else {
      AddQuerySpace(spec, queries, keys, clusters, passes, &codes);
    }
    if (head_by_head) {
      const CostStage shared = {.tasks = Units(queries, hashes ? kCodeRange : kQueryRange),
                                .operations = assignment,
                                .passes = heads * passes,
                                .work = codes};
      AddStage(shared, team, terms);
    } else {
      cluster.tasks += heads;
      cluster.operations +=
          heads * (100 * queries + assignment * (clustering.iterations + (hashes ? 0 : 1)));
      for (size_t t = 0; t < kCostTerms; ++t) cluster.work[t] += codes[t];
    }

    const double wanted = Units(4 * workers, all_heads);
    const double tiles = std::max(Units(clusters, kTileRows),
                                  std::min(wanted, std::floor(clusters / kFewestCentroids)));
    const double exact = std::min(topk, keys);
    const double work = 2 * (keys * clusters + queries * (topk + 1)) * (d + dv);
    attend.Add(heads * tiles, work / tiles);
    attend.operations += heads * work;
    attend.AddProducts(heads * clusters, heads * tiles, keys, d, dv + (own_mass ? d : 0));
    // Queries are summed into centroids, and rows written.
    attend.AddRows(heads * (queries + tiles * keys), d);
    attend.AddRows(heads * tiles * keys, dv);
    attend.AddRows(heads * queries, dv, CostTerm::kStores);
    At(attend.work, CostTerm::kClusters) += heads * clusters;
    if (exact == 0) continue;
    const double gathered = clusters * exact;
    attend.AddRows(heads * gathered, d, CostTerm::kGather);
    attend.AddRows(heads * gathered, dv, CostTerm::kGather);
    const double lanes = InLanes(exact);
    attend.AddRows(heads * queries, d);
    At(attend.work, CostTerm::kExact) +=
        heads * queries * (lanes * d + exact * InLanes(dv) + (own_mass ? InLanes(d) : 0));
    At(attend.work, CostTerm::kRefined) += heads * queries * (lanes + (own_mass ? 1 : 0));
    // A sorting network for each vector of centroids.
    const double slots = std::exp2(std::ceil(std::log2(2 * exact)));
    if (slots <= kSortedSlots && keys >= (own_mass ? 1.5 : 2) * slots) {
      const double steps = std::log2(slots);
      At(attend.work, CostTerm::kSelect) +=
          heads * tiles * InLanes(clusters / tiles) * slots * steps * (steps + 1) / 4;
    } else {
      At(attend.work, CostTerm::kSelect) += heads * clusters * std::min(keys, 1024.0) * 8;
    }
  }
  if (hashes) {
    At(*terms, CostTerm::kPlanes) += bits * d / kMillion;
    AddStage(hash, team, terms);
  }
  if (!head_by_head) AddStage(cluster, team, terms);
  AddStage(attend, team, terms);
}

void AddCast(const Spec& spec, const Cast& cast, std::span<const int32_t> cu_seqlens,
             const Team& team, CostTerms* terms) {
  const auto heads = static_cast<double>(spec.heads);
  const auto d = static_cast<double>(spec.head_dim);
  const auto dv = static_cast<double>(spec.value_dim);
  const double clusters = static_cast<double>(std::max<int64_t>(1, spec.surrogates));
  const double workers = std::max(1, team.workers);
  const bool single = cast.clustering == Cast::Clustering::kSingleAssignmentTopK;
  const double clusterings = cast.head_clustering == Cast::HeadClustering::kPerHead ? heads : 1;
  CostStage pack;
  CostStage affinities;
  CostStage select;
  CostStage inside;
  CostStage combine;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const double tokens = static_cast<double>(cu_seqlens[s + 1] - cu_seqlens[s]);
    if (tokens == 0) continue;
    const double tiles = Units(tokens, kCastTile);
    const double pairs = tokens * clusters;
    const double asked = cast.cluster_size > 0 ? cast.cluster_size : Units(tokens, clusters);
    // Clusters of a single assignment share the tokens; there may be room for more.
    const double members =
        std::min(tokens, single ? std::min(asked, Units(tokens, clusters)) : asked);

    At(affinities.work, CostTerm::kCodes) += tokens;  // gates

    // Queries and keys with all surrogates, without outputs.
    affinities.tasks += tiles * clusterings;
    affinities.operations += heads * pairs * (4 * d + 40);
    affinities.AddRows(2 * heads * tokens, d);
    affinities.AddProducts(2 * heads * tokens, 2 * heads * tiles, clusters, d, 0);

    select.tasks += clusterings * (single ? 1 : clusters);
    select.operations += 10 * pairs * clusterings;
    At(select.work, single ? CostTerm::kAssign : CostTerm::kSelect) += pairs * clusterings;
    if (single) At(select.work, CostTerm::kCodes) += 10 * tokens * clusterings;

    // Members among themselves: keys and values are gathered for each part of the queries.
    const double used = heads * (single ? std::min(clusters, tokens) : clusters);
    const double parts = Units(members, kCastPart);
    inside.tasks += used * parts;
    inside.operations += 2 * used * (members + 1) * members * (d + dv);
    inside.AddRows(used * (1 + parts) * members, d, CostTerm::kGather);
    inside.AddRows(used * (1 + parts) * members, dv, CostTerm::kGather);
    inside.AddProducts(used * members, used * parts, members, d, dv);

    combine.tasks += heads * tiles;
    combine.operations += heads * pairs * (2 * (d + dv) + 20);
    combine.AddRows(heads * tokens, d);
    combine.AddRows(used * members, dv);
    combine.AddRows(heads * tokens, dv, CostTerm::kStores);
    combine.AddProducts(heads * tokens, heads * tiles, clusters, d, dv);
  }
  // Sequences share a layer's surrogates.
  pack.tasks = 1;
  pack.AddRows(heads * clusters, d);
  // A thread takes up to four heads of a cluster in a row.
  inside.together = std::clamp(std::floor(inside.tasks / (8 * workers)), 1.0, 4.0);
  for (CostStage* stage : {&affinities, &inside, &combine}) {
    if (cast.attention_function != Cast::AttentionFunction::kLaplace) continue;
    At(stage->work, CostTerm::kLaplace) = At(stage->work, CostTerm::kWeights);
  }
  for (const CostStage* stage : {&pack, &affinities, &select, &inside, &combine}) {
    AddStage(*stage, team, terms);
  }
}

}  // namespace

CostTerms CostTermsOf(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                      std::span<const int32_t> cu_seqlens_k, const Team& team) {
  CostTerms terms{};
  At(terms, CostTerm::kLaunch) = 1;
  const double q = cu_seqlens_q.empty() ? 0 : static_cast<double>(cu_seqlens_q.back());
  const double k = cu_seqlens_k.empty() ? 0 : static_cast<double>(cu_seqlens_k.back());
  At(terms, CostTerm::kMemory) = static_cast<double>(SizeOf(spec.dtype)) *
                                 static_cast<double>(spec.heads) * (q + k) *
                                 static_cast<double>(spec.head_dim + spec.value_dim) / kMillion;
  if (const auto* vanilla = std::get_if<Vanilla>(&spec.kernel)) {
    AddVanilla(spec, vanilla->causal, cu_seqlens_q, cu_seqlens_k, team, &terms);
  } else if (const auto* cast = std::get_if<Cast>(&spec.kernel)) {
    AddCast(spec, *cast, cu_seqlens_q, team, &terms);
  } else if (const Clustered* clustering = ClusteringOf(spec.kernel)) {
    const auto* improved = std::get_if<ImprovedClustered>(&spec.kernel);
    AddClustered(spec, *clustering, improved == nullptr ? 0 : improved->topk, cu_seqlens_q,
                 cu_seqlens_k, team, &terms);
  }
  return terms;
}

}  // namespace castor::attention
