// Clustered and improved clustered attention on the CPU: cuts a ragged batch into tasks and hands
// them to the kernels of this processor's instruction set.
//
// Three stages, each over the whole batch: hash codes (a task is some tokens, in all heads),
// clusters (a sequence and a head) and attention (some clusters of a sequence and a head). They
// need twelve bytes per token and head, the hash planes, the clusters' offsets and counts, the list
// of the last stage's tasks, and a scratch area and a clusterer per worker. Clustering in the space
// of queries has no first stage, no planes and no codes, which are eight of the twelve bytes. The
// groups of keys, if there are several, are a stage before attention and four bytes per key and
// head.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/attention/clustered/clustering.h"
#include "engine/attention/element.h"
#include "engine/attention/parallel.h"
#include "engine/attention/variants.h"
#include "engine/base/aligned.h"
#include "engine/base/error.h"
#include "engine/kernels/count.h"
#include "engine/kernels/cpu/clustered/clusters.h"

namespace castor::attention {
namespace {

using kernels::CentroidShape;
using kernels::CentroidTile;
using kernels::ClusterKernel;

// The most operations for a step that cannot be cut any further.
constexpr double kMostOperations = 50 * kStepOperations;

// The most clusters in a tile: fewer if rows are very long, as in vanilla_cpu.cc, or if the sums of
// several groups would not stay in the second-level cache.
int64_t MostCentroids(const Spec& spec, int64_t groups) {
  constexpr double kCachedFloats = 1 << 18;
  const double row = static_cast<double>(spec.head_dim) + static_cast<double>(spec.value_dim);
  double most = kMostOperations / (256 * row);
  if (groups > 1) {
    most = std::min(most, std::max(64.0, kCachedFloats / (3 * static_cast<double>(groups) * row)));
  }
  return std::clamp<int64_t>(static_cast<int64_t>(most), 16, kernels::kMostCentroids);
}

CentroidShape ShapeOf(const Spec& spec) {
  const auto* improved = std::get_if<ImprovedClustered>(&spec.kernel);
  const int64_t groups = WeighsRest(spec.kernel) ? improved->rest_groups : 0;
  return {.element = ElementOf(spec.dtype),
          .head_dim = spec.head_dim,
          .value_dim = spec.value_dim,
          .scale = spec.softmax_scale,
          .clusters = MostCentroids(spec, groups),
          .topk = improved == nullptr ? 0 : improved->topk,
          .groups = groups,
          .biased = spec.key_bias_heads > 0};
}

// How keys are clustered into groups.
Clustered GroupingOf(const Clustered& clustering, int64_t groups) {
  constexpr auto kClustering = Clustered::Clustering::kQuerySpace;
  return {.clusters = static_cast<int32_t>(groups),
          .iterations = DefaultIterations(kClustering),
          .seed = clustering.seed,
          .clustering = kClustering};
}

bool Hashes(const Clustered& clustering) {
  return clustering.clustering == Clustered::Clustering::kHash;
}

struct Sequence {
  const Problem* problem;
  int64_t query_offset;  // the sequence's first token in its problem
  int64_t queries;
  int64_t key_offset;
  int64_t keys;
  int64_t code_offset;     // of its codes in codes_, [heads, queries]
  int64_t cluster_offset;  // of its clusters in begins_, [heads, most clusters + 1]
  int64_t most_clusters;
  int64_t grouped_offset;  // of its keys in key_order_, [heads, keys]
};

// The planes of the last launch on this thread. The next launch usually needs them again, because
// most requests have the default seed, and drawing planes takes as long as hashing some hundred
// tokens. A launch holds a reference, because another launch may run at one of its checkpoints.
std::shared_ptr<const HashPlaneSet> PlanesFor(const ClusterKernel& kernel,
                                              const Clustered& clustering, int64_t head_dim) {
  thread_local std::shared_ptr<const HashPlaneSet> planes;
  if (planes == nullptr || !planes->IsFor(kernel, clustering, head_dim)) {
    planes = std::make_shared<const HashPlaneSet>(kernel, clustering, head_dim);
  }
  return planes;
}

// Tokens per hash task.
int64_t HashTokens(const Spec& spec, int bits) {
  const double token = 2.0 * static_cast<double>(spec.heads) * static_cast<double>(spec.head_dim) *
                       static_cast<double>(bits);
  return std::clamp<int64_t>(static_cast<int64_t>(kMostOperations / token), 1, 192);
}

int64_t ScratchFloats(const ClusterKernel& kernel, const Spec& spec) {
  return std::max(kernel.hash_scratch_floats(spec.head_dim),
                  kernel.attend_scratch_floats(ShapeOf(spec)));
}

// Some clusters of a sequence and a head.
struct ClusterTask {
  const Sequence* sequence;
  int64_t head;
  int64_t begin;
  int64_t end;
};

// The number of tasks of a head's clusters, for a launch of `heads` heads over all its sequences. A
// row depends neither on its tile nor on the other centroids in it, so tiles may be small enough to
// give every worker some.
int64_t TasksOf(const CentroidShape& shape, int64_t clusters, int64_t heads) {
  constexpr int64_t kFewest = 32;
  const int64_t wanted = Count(int64_t{4} * ParallelWorkers()).Units(heads).value();
  const int64_t least = Count(clusters).Units(shape.clusters).value();
  return std::max(least, std::min(wanted, clusters / kFewest));
}

// One launch.
class Launch {
 public:
  Launch(const ClusterKernel& kernel, const Spec& spec, std::span<const Problem> problems,
         RunControl& control)
      : kernel_(kernel),
        spec_(spec),
        control_(control),
        clustering_(*ClusteringOf(spec.kernel)),
        shape_(ShapeOf(spec)),
        grouping_(GroupingOf(clustering_, shape_.groups)),
        planes_(Hashes(clustering_) ? PlanesFor(kernel, clustering_, spec.head_dim) : nullptr),
        scratch_floats_(ScratchFloats(kernel, spec)) {
    for (const Problem& problem : problems) AddSequences(problem);
    if (Hashes(clustering_)) codes_.resize(tokens_ * spec.heads);
    order_.resize(tokens_ * spec.heads);
    begins_.resize(offsets_);
    counts_.resize(sequences_.size() * spec.heads);
    if (shape_.groups > 1) {
      key_order_.resize(keys_ * spec.heads);
      group_begins_.resize(counts_.size() * (shape_.groups + 1));
      group_counts_.resize(counts_.size());
    }
    scratch_ = AllocateAligned<float>(scratch_floats_ * ParallelWorkers());
  }

  absl::Status Run() {
    if (Hashes(clustering_)) {
      if (absl::Status status = Hash(); !status.ok()) return status;
    }
    absl::Status status =
        Hashes(clustering_) ? ClusterCodes() : ClusterRows(clustering_, /*keys=*/false);
    if (status.ok() && shape_.groups > 1) status = ClusterRows(grouping_, /*keys=*/true);
    return status.ok() ? Attend() : status;
  }

 private:
  void AddSequences(const Problem& problem) {
    for (int64_t s = 0; s < problem.sequences(); ++s) {
      Sequence sequence;
      sequence.problem = &problem;
      sequence.query_offset = problem.cu_seqlens_q[s];
      sequence.queries = problem.cu_seqlens_q[s + 1] - sequence.query_offset;
      sequence.key_offset = problem.cu_seqlens_k[s];
      sequence.keys = problem.cu_seqlens_k[s + 1] - sequence.key_offset;
      sequence.most_clusters = std::min<int64_t>(clustering_.clusters, sequence.queries);
      sequence.code_offset = tokens_ * spec_.heads;
      sequence.cluster_offset = offsets_;
      sequence.grouped_offset = keys_ * spec_.heads;
      if (sequence.queries == 0) continue;
      tokens_ += sequence.queries;
      keys_ += sequence.keys;
      offsets_ += spec_.heads * (sequence.most_clusters + 1);
      const int64_t products = sequence.keys * sequence.most_clusters +
                               sequence.queries * (shape_.topk + shape_.groups + 1);
      attention_flops_ += 2.0 * static_cast<double>(products) * static_cast<double>(spec_.heads) *
                          static_cast<double>(spec_.head_dim + spec_.value_dim);
      sequences_.push_back(sequence);
    }
  }

  const std::byte* QueryRow(const Sequence& sequence, int64_t token, int64_t head) const {
    const int64_t element =
        (sequence.query_offset + token) * sequence.problem->query_stride + head * spec_.head_dim;
    return sequence.problem->query + element * static_cast<int64_t>(SizeOf(spec_.dtype));
  }

  absl::Status Hash() {
    struct Tokens {
      const Sequence* sequence;
      int64_t begin;
      int64_t end;
    };
    const int64_t most = HashTokens(spec_, clustering_.bits);
    std::vector<Tokens> tasks;
    for (const Sequence& sequence : sequences_) {
      for (int64_t begin = 0; begin < sequence.queries; begin += most) {
        tasks.push_back({&sequence, begin, std::min(sequence.queries, begin + most)});
      }
    }
    const double flops = 2.0 * static_cast<double>(tokens_ * spec_.heads) *
                         static_cast<double>(spec_.head_dim) * clustering_.bits;
    return ParallelFor(
        static_cast<int64_t>(tasks.size()), flops, control_, [&](int worker, int64_t task) {
          const auto& [sequence, begin, end] = tasks[task];
          for (int64_t head = 0; head < spec_.heads; ++head) {
            kernel_.hash(planes_->planes(), shape_.element, QueryRow(*sequence, begin, head),
                         sequence->problem->query_stride, end - begin,
                         &codes_[sequence->code_offset + head * sequence->queries + begin],
                         Scratch(worker));
          }
        });
  }

  absl::Status ClusterCodes() {
    double flops = 0;
    int64_t longest = 1;
    for (const Sequence& sequence : sequences_) {
      longest = std::max(longest, sequence.queries);
      flops += static_cast<double>(sequence.queries * spec_.heads) *
               (100 + 3.0 * static_cast<double>(sequence.most_clusters * clustering_.iterations));
    }
    return Cluster<CodeClusterer>(
        flops, &counts_,
        [&] { return std::make_unique<CodeClusterer>(kernel_, clustering_, longest); },
        [&](CodeClusterer& clusterer, const Sequence& sequence, int64_t head) {
          const uint64_t* const codes = &codes_[sequence.code_offset + head * sequence.queries];
          clusterer.Start({codes, static_cast<size_t>(sequence.queries)}, Order(sequence, head),
                          Begins(sequence, head));
        });
  }

  // Clusters queries in the metric of their keys; or keys, into their groups, in that of their
  // queries.
  absl::Status ClusterRows(const Clustered& parameters, bool keys) {
    double flops = 0;
    int64_t longest = 1;
    for (const Sequence& sequence : sequences_) {
      const int64_t rows = keys ? sequence.keys : sequence.queries;
      longest = std::max(longest, rows);
      flops += 2.0 * static_cast<double>(spec_.heads * spec_.head_dim) *
               static_cast<double>(rows * std::min<int64_t>(parameters.clusters, rows)) *
               (parameters.iterations + 1);
    }
    return Cluster<QueryClusterer>(
        flops, keys ? &group_counts_ : &counts_,
        [&] {
          return std::make_unique<QueryClusterer>(kernel_, parameters, spec_.head_dim, longest);
        },
        [&](QueryClusterer& clusterer, const Sequence& sequence, int64_t head) {
          const CentroidTile tile = TileOf(sequence, head, 0, 0);
          kernels::QueryClustering of = {.element = shape_.element,
                                         .query = tile.query,
                                         .query_stride = tile.query_stride,
                                         .count = sequence.queries,
                                         .key = tile.key,
                                         .key_stride = tile.key_stride,
                                         .keys = tile.keys};
          if (!keys) return clusterer.Start(of, Order(sequence, head), Begins(sequence, head));
          std::swap(of.query, of.key);
          std::swap(of.query_stride, of.key_stride);
          std::swap(of.count, of.keys);
          clusterer.Start(of, KeyOrder(sequence, head), GroupBegins(sequence, head));
        });
  }

  // make() makes a clusterer; start(clusterer, sequence, head) starts it on a head. Writes
  // `counts`, [sequences, heads].
  template <typename ClustererType, typename Make, typename Start>
  absl::Status Cluster(double flops, std::vector<int64_t>* counts, Make make, Start start) {
    const int64_t tasks = static_cast<int64_t>(sequences_.size()) * spec_.heads;
    const auto start_task = [&](ClustererType& clusterer, int64_t task) {
      start(clusterer, sequences_[task / spec_.heads], task % spec_.heads);
    };
    if (tasks < ParallelWorkers()) {
      const std::unique_ptr<ClustererType> clusterer = make();
      for (int64_t task = 0; task < tasks; ++task) {
        start_task(*clusterer, task);
        if (absl::Status status = RunPasses(*clusterer, control_); !status.ok()) return status;
        (*counts)[task] = clusterer->clusters();
      }
      return absl::OkStatus();
    }
    // Allocated here, since tasks must not throw.
    struct Worker {
      std::unique_ptr<ClustererType> clusterer;
      int64_t at = 0;  // in the pass
    };
    std::vector<Worker> workers(ParallelWorkers());
    for (Worker& worker : workers) worker.clusterer = make();
    return ParallelSteps(tasks, flops, control_, [&](int worker, int64_t task, int64_t step) {
      auto& [clusterer, at] = workers[worker];
      if (step == 0) start_task(*clusterer, task);
      if (StepThrough(*clusterer, &at)) return true;
      (*counts)[task] = clusterer->clusters();
      return false;
    });
  }

  absl::Status Attend() {
    const int64_t heads = static_cast<int64_t>(sequences_.size()) * spec_.heads;
    if (heads == 0) return absl::OkStatus();
    std::vector<ClusterTask> tasks;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (int64_t head = 0; head < spec_.heads; ++head) {
        const int64_t count = counts_[s * spec_.heads + head];
        const int64_t tiles = TasksOf(shape_, count, heads);
        for (int64_t t = 0; t < tiles; ++t) {
          tasks.push_back({&sequences_[s], head, count * t / tiles, count * (t + 1) / tiles});
        }
      }
    }
    std::vector<kernels::CentroidProgress> progress(ParallelWorkers());
    return ParallelSteps(static_cast<int64_t>(tasks.size()), attention_flops_, control_,
                         [&](int worker, int64_t task, int64_t step) {
                           if (step == 0) progress[worker] = {};
                           const auto& [sequence, head, begin, end] = tasks[task];
                           return kernel_.attend(shape_, TileOf(*sequence, head, begin, end),
                                                 kStepOperations, &progress[worker],
                                                 Scratch(worker));
                         });
  }

  CentroidTile TileOf(const Sequence& sequence, int64_t head, int64_t begin, int64_t end) {
    const Problem& problem = *sequence.problem;
    const auto size = static_cast<int64_t>(SizeOf(spec_.dtype));
    const auto row = [&](auto* data, int64_t token, int64_t stride, int64_t at) {
      return data + (token * stride + at) * size;
    };
    const int64_t kv_head = head / spec_.group();
    CentroidTile tile;
    tile.query = QueryRow(sequence, 0, head);
    tile.key = row(problem.key, sequence.key_offset, problem.key_stride, kv_head * spec_.head_dim);
    tile.value = row(problem.value, sequence.key_offset, problem.value_stride,
                     kv_head * problem.value_head_stride);
    tile.output =
        row(problem.output, sequence.query_offset, problem.output_stride, head * spec_.value_dim);
    tile.query_stride = problem.query_stride;
    tile.key_stride = problem.key_stride;
    tile.value_stride = problem.value_stride;
    tile.output_stride = problem.output_stride;
    if (problem.log_sum_exp != nullptr) {
      tile.log_sum_exp = problem.log_sum_exp + sequence.query_offset * spec_.heads + head;
      tile.log_sum_exp_stride = spec_.heads;
    }
    if (problem.key_bias != nullptr) {
      tile.key_bias = KeyBiasOf(spec_, problem, sequence.key_offset, head);
      tile.key_bias_stride = spec_.key_bias_heads;
    }
    tile.keys = sequence.keys;
    tile.order = Order(sequence, head);
    tile.begin = Begins(sequence, head) + begin;
    tile.clusters = end - begin;
    if (shape_.groups > 1) {
      tile.key_order = KeyOrder(sequence, head);
      tile.group_end = GroupBegins(sequence, head) + 1;
      tile.groups = group_counts_[IndexOf(sequence, head)];
    }
    return tile;
  }

  // The head's place among those of all sequences.
  int64_t IndexOf(const Sequence& sequence, int64_t head) const {
    return (&sequence - sequences_.data()) * spec_.heads + head;
  }
  int32_t* Order(const Sequence& sequence, int64_t head) {
    return &order_[sequence.code_offset + head * sequence.queries];
  }
  int32_t* Begins(const Sequence& sequence, int64_t head) {
    return &begins_[sequence.cluster_offset + head * (sequence.most_clusters + 1)];
  }
  int32_t* KeyOrder(const Sequence& sequence, int64_t head) {
    return &key_order_[sequence.grouped_offset + head * sequence.keys];
  }
  int32_t* GroupBegins(const Sequence& sequence, int64_t head) {
    return &group_begins_[IndexOf(sequence, head) * (shape_.groups + 1)];
  }

  float* Scratch(int worker) { return scratch_.get() + worker * scratch_floats_; }

  const ClusterKernel& kernel_;
  const Spec& spec_;
  RunControl& control_;
  const Clustered& clustering_;
  const CentroidShape shape_;
  const Clustered grouping_;  // of keys
  const std::shared_ptr<const HashPlaneSet> planes_;
  const int64_t scratch_floats_;
  std::vector<Sequence> sequences_;
  int64_t tokens_ = 0;
  int64_t keys_ = 0;
  int64_t offsets_ = 0;
  double attention_flops_ = 0;
  std::vector<uint64_t> codes_;  // of a hash; sequence after sequence: [heads, queries]
  std::vector<int32_t> order_;   // the same: queries, cluster after cluster
  std::vector<int32_t> begins_;  // sequence after sequence: [heads, most clusters + 1]
  std::vector<int64_t> counts_;  // [sequences, heads]: clusters that have members
  // With several groups of keys: the same of keys.
  std::vector<int32_t> key_order_;
  std::vector<int32_t> group_begins_;  // [sequences, heads, groups + 1]
  std::vector<int64_t> group_counts_;
  AlignedArray<float> scratch_;
};

template <const ClusterKernel& kKernel, KernelName kName>
bool Supports(const Spec& spec) {
  return NameOf(spec.kernel) == kName && IsFloating(spec.dtype) && !spec.positional() &&
         spec.softcap == 0 && kKernel.runs_here();
}

template <const ClusterKernel& kKernel>
int64_t WorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                       std::span<const int32_t> cu_seqlens_k) {
  const Clustered& clustering = *ClusteringOf(spec.kernel);
  const CentroidShape shape = ShapeOf(spec);
  const int64_t groups = shape.groups;
  constexpr int64_t kFloat = sizeof(float);
  constexpr int64_t kOffset = sizeof(int32_t);
  const int64_t per_token = sizeof(int32_t) + (Hashes(clustering) ? sizeof(uint64_t) : 0);
  const Count heads = Count(spec.heads) * static_cast<int64_t>(cu_seqlens_q.size() - 1);
  int64_t longest = 0;
  int64_t most_keys = 0;
  Count per_head = Count(cu_seqlens_q.back()) * per_token;
  for (size_t s = 0; s + 1 < cu_seqlens_q.size(); ++s) {
    const int64_t queries = cu_seqlens_q[s + 1] - cu_seqlens_q[s];
    const int64_t clusters = std::min<int64_t>(clustering.clusters, queries);
    longest = std::max(longest, queries);
    most_keys = std::max<int64_t>(most_keys, cu_seqlens_k[s + 1] - cu_seqlens_k[s]);
    per_head += Count(clusters + 1) * kOffset + static_cast<int64_t>(sizeof(int64_t));  // counts
    per_head += Count(TasksOf(shape, clusters, std::max<int64_t>(heads.value(), 1))) *
                static_cast<int64_t>(sizeof(ClusterTask));
    if (groups > 1) per_head += Count(groups + 1) * kOffset + static_cast<int64_t>(sizeof(int64_t));
  }
  if (groups > 1) per_head += Count(cu_seqlens_k.back()) * kOffset;
  // A clusterer for every worker, since other requests of the batch may bring enough heads for all.
  Count planes = 0;
  Count clusterer = 0;
  if (Hashes(clustering)) {
    planes = Count(kKernel.packed_planes_floats(clustering.bits, spec.head_dim)) +
             Count(clustering.bits) * (Count(spec.head_dim) + 1);
    clusterer = CodeClusterer::Bytes(clustering, longest);
  } else {
    clusterer = QueryClusterer::Bytes(kKernel, clustering, spec.head_dim, longest);
  }
  if (groups > 1) {
    const Count grouper =
        QueryClusterer::Bytes(kKernel, GroupingOf(clustering, groups), spec.head_dim, most_keys);
    clusterer = std::max(clusterer.value(), grouper.value());
  }
  const Count per_worker = ScratchFloats(kKernel, spec) * Count(kFloat) + clusterer;
  return (spec.heads * per_head + planes * kFloat + per_worker * ParallelWorkers()).value();
}

template <const ClusterKernel& kKernel>
absl::Status Run(const Spec& spec, std::span<const Problem> problems, RunControl& control) {
  return Launch(kKernel, spec, problems, control).Run();
}

template <const ClusterKernel& kKernel, KernelName kName>
constexpr Variant Row(std::string_view backend) {
  return {kName, backend, &Supports<kKernel, kName>, &Run<kKernel>, &WorkspaceBytes<kKernel>};
}

constexpr Variant kRows[] = {
#if defined(__x86_64__)
    Row<kernels::kClusterAvx512, KernelName::kClustered>("cpu-avx512"),
    Row<kernels::kClusterAvx2, KernelName::kClustered>("cpu-avx2"),
    Row<kernels::kClusterAvx512, KernelName::kImprovedClustered>("cpu-avx512"),
    Row<kernels::kClusterAvx2, KernelName::kImprovedClustered>("cpu-avx2"),
#endif
    Row<kernels::kClusterPortable, KernelName::kClustered>("cpu-portable"),
    Row<kernels::kClusterPortable, KernelName::kImprovedClustered>("cpu-portable"),
};

}  // namespace

std::span<const Variant> ClusteredCpuVariants() { return kRows; }

}  // namespace castor::attention
