// The stages of cast_wave.h. In each stage, every task writes to its own place, and results do not
// depend on how the tasks are cut.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/attention/cast/cast_wave.h"
#include "engine/attention/parallel.h"
#include "engine/kernels/assignment.h"

namespace castor::attention {
namespace {

constexpr int64_t kHeadsInARow = 4;

// The number of pieces of each tile of tokens, for a stage of `operations` in `tasks` tasks: one,
// unless layers are so large that a tile takes much longer than a step should.
int64_t PiecesOf(double operations, size_t tasks) {
  constexpr double kMostOperations = 50 * kStepOperations;
  constexpr int64_t kMost = kernels::kCastTokens / 16;
  if (tasks == 0) return 1;
  const double pieces = operations / static_cast<double>(tasks) / kMostOperations;
  return pieces >= kMost ? kMost : 1 + static_cast<int64_t>(pieces);
}

}  // namespace

std::vector<CastWave::Task> CastWave::TileTasks(int64_t of_pass, int64_t tile_begin,
                                                int64_t tile_end) {
  std::vector<Task> tasks;
  int64_t tiles = 0;
  for (const Sequence& sequence : sequences_) {
    tiles += std::max<int64_t>(0, std::min(tile_end, sequence.tiles) - tile_begin);
  }
  tasks.reserve(tiles * of_pass);
  for (Sequence& sequence : sequences_) {
    for (int64_t tile = tile_begin; tile < std::min(tile_end, sequence.tiles); ++tile) {
      for (int64_t n = 0; n < of_pass; ++n) tasks.push_back({&sequence, n, tile});
    }
  }
  return tasks;
}

std::vector<CastWave::Task> CastWave::ClusterTasks(int64_t of_pass) {
  std::vector<Task> tasks;
  tasks.reserve(sequences_.size() * of_pass * spec_.surrogates);
  for (Sequence& sequence : sequences_) {
    for (int64_t n = 0; n < of_pass; ++n) {
      for (int64_t c = 0; c < spec_.surrogates; ++c) tasks.push_back({&sequence, n, c});
    }
  }
  return tasks;
}

// Pairs of a token and a cluster, over `heads` heads.
double CastWave::PairsOf(int64_t heads) const {
  return static_cast<double>(tokens_) * static_cast<double>(spec_.surrogates) *
         static_cast<double>(heads);
}

// The functions of phi that the steps use: sigma(phi), sp1(phi), sp1(-phi).
absl::Status CastWave::ComputeGates() {
  const bool softplus = cast_.gate_temperature == Cast::GateTemperature::kSoftplus1;
  const std::vector<Task> tasks = TileTasks(1, 0, tiles_);
  const double operations = 60.0 * static_cast<double>(tokens_);
  return ParallelFor(static_cast<int64_t>(tasks.size()), operations, control_, [&](int, int64_t t) {
    const Sequence& sequence = *tasks[t].sequence;
    const int64_t end = sequence.TileBegin(tasks[t].index + 1);
    for (int64_t i = sequence.TileBegin(tasks[t].index); i < end; ++i) {
      const float phi = sequence.gate[i];
      const float decayed = std::exp(-std::abs(phi));
      const float lesser = softplus ? std::log1p(decayed) : 0;  // softplus of -|phi|
      sequence.query_share[i] = (phi < 0 ? decayed : 1.0f) / (1 + decayed);
      sequence.query_temperature[i] = 1 + (softplus ? std::max(phi, 0.0f) + lesser : 0);
      sequence.key_temperature[i] = 1 + (softplus ? std::max(-phi, 0.0f) + lesser : 0);
    }
  });
}

// Steps 1 and 2, for all heads together or for one head per clustering.
absl::Status CastWave::ComputeAffinities(int64_t first_head, int64_t clusterings) {
  const bool shared = cast_.head_clustering == Cast::HeadClustering::kShared;
  const std::vector<Task> tasks = TileTasks(clusterings, 0, tiles_);
  const int64_t heads = shared ? spec_.heads : clusterings;
  const double operations = PairsOf(heads) * static_cast<double>(4 * spec_.head_dim + 40);
  const int64_t pieces = PiecesOf(operations, tasks.size());
  return ParallelFor(static_cast<int64_t>(tasks.size()) * pieces, operations, control_,
                     [&](int worker, int64_t n) {
                       const Task& task = tasks[n / pieces];
                       const Sequence& sequence = *task.sequence;
                       const int64_t head = first_head + task.of_pass;
                       kernel_.affinities(shape_, sequence.in, shared ? 0 : head,
                                          shared ? spec_.heads : head + 1,
                                          sequence.PieceBegin(task.index, n % pieces, pieces),
                                          sequence.PieceBegin(task.index, n % pieces + 1, pieces),
                                          sequence.clusterings[task.of_pass].affinities,
                                          sequence.tokens, scratch_ + worker * scratch_floats_);
                     });
}

// Step 3, TOP_K.
absl::Status CastWave::SelectMembers(int64_t clusterings) {
  const std::vector<Task> tasks = ClusterTasks(clusterings);
  const double operations = 10.0 * PairsOf(clusterings);
  return ParallelFor(
      static_cast<int64_t>(tasks.size()), operations, control_, [&](int worker, int64_t t) {
        const Sequence& sequence = *tasks[t].sequence;
        const Clustering& clustering = sequence.clusterings[tasks[t].of_pass];
        const int64_t begin = tasks[t].index * sequence.cluster_size;
        clustering.offsets[tasks[t].index] = static_cast<int32_t>(begin);
        clustering.offsets[tasks[t].index + 1] =
            static_cast<int32_t>(begin + sequence.cluster_size);
        kernels::SelectTop(clustering.affinities + tasks[t].index * sequence.tokens,
                           sequence.tokens, sequence.cluster_size,
                           ranks_ + worker * 2 * layout_.longest(), clustering.members + begin);
      });
}

// Step 3, SINGLE_ASSIGNMENT_TOP_K.
absl::Status CastWave::AssignMembers(int64_t clusterings) {
  struct Job {
    kernels::SingleAssignment assignment;
    int64_t at = 0;  // in the pass
  };
  std::vector<Job> jobs;
  jobs.reserve(sequences_.size() * clusterings);
  for (const Sequence& sequence : sequences_) {
    for (int64_t n = 0; n < clusterings; ++n) {
      const Clustering& clustering = sequence.clusterings[n];
      jobs.push_back(
          {kernels::SingleAssignment(sequence.tokens, spec_.surrogates, sequence.cluster_size)});
      jobs.back().assignment.Start(clustering.affinities, clustering.offsets, clustering.members);
    }
  }
  if (jobs.size() == 1) return RunPasses(jobs[0].assignment, control_);
  const double operations = 10.0 * PairsOf(clusterings);
  return ParallelSteps(
      static_cast<int64_t>(jobs.size()), operations, control_,
      [&](int, int64_t job, int64_t) { return StepThrough(jobs[job].assignment, &jobs[job].at); });
}

absl::Status CastWave::CutMembers(int64_t clusterings) {
  const std::vector<Task> tasks = ClusterTasks(clusterings);
  const double operations = 2.0 * static_cast<double>(layout_.rows().value());
  return ParallelFor(static_cast<int64_t>(tasks.size()), operations, control_, [&](int, int64_t t) {
    const Sequence& sequence = *tasks[t].sequence;
    const Clustering& clustering = sequence.clusterings[tasks[t].of_pass];
    int32_t n = clustering.offsets[tasks[t].index];
    for (int64_t tile = 0; tile <= sequence.tiles; ++tile) {
      const int64_t begin = sequence.TileBegin(tile);
      while (n < clustering.offsets[tasks[t].index + 1] && clustering.members[n] < begin) ++n;
      clustering.cuts[tile * spec_.surrogates + tasks[t].index] = n;
    }
  });
}

// Advances `*tile` by as many tiles, of all sequences, as there are rows for their members.
absl::Status CastWave::TilesThatFit(int64_t heads, int64_t* tile) const {
  int64_t rows = 0;
  int64_t& end = *tile;
  for (const int64_t begin = end; end < tiles_; ++end) {
    // There can be thousands of tiles, each with thousands of clusters.
    if ((end - begin) % 64 == 63) {
      if (absl::Status status = control_.Checkpoint(); !status.ok()) return status;
    }
    for (const Sequence& sequence : sequences_) {
      if (end >= sequence.tiles) continue;
      for (int64_t n = 0; n < heads; ++n) {
        const int32_t* const cuts = sequence.heads[n].clustering->cuts + end * spec_.surrogates;
        for (int64_t c = 0; c < spec_.surrogates; ++c) rows += cuts[spec_.surrogates + c] - cuts[c];
      }
    }
    if (rows > layout_.rows().value()) break;
  }
  return absl::OkStatus();
}

std::vector<CastWave::InsideTask> CastWave::InsideTasks(int64_t first_head, int64_t heads,
                                                        int64_t tile_begin,
                                                        int64_t tile_end) const {
  const int64_t clusters = spec_.surrogates;
  const int64_t dim = spec_.value_dim;
  std::vector<InsideTask> tasks;
  tasks.reserve(layout_.inside_tasks().value());
  int64_t row = 0;
  for (const Sequence& sequence : sequences_) {
    const int64_t first_cut = std::min(tile_begin, sequence.tiles) * clusters;
    const int64_t last_cut = std::min(tile_end, sequence.tiles) * clusters;
    for (int64_t c = 0; c < clusters; ++c) {
      // Neighbouring tasks are heads of the same tokens, whose rows share pages of memory.
      for (int64_t n = 0; n < heads; ++n) {
        const Head& head = sequence.heads[n];
        const Clustering& clustering = *head.clustering;
        const int64_t offset = clustering.offsets[c];
        const int64_t members = clustering.offsets[c + 1] - offset;
        const int64_t begin = clustering.cuts[first_cut + c];
        const int64_t count = clustering.cuts[last_cut + c] - begin;
        head.first_row[c] = row - begin;
        float* summary = tile_begin == 0 ? head.summaries + c * dim : nullptr;
        if (summary != nullptr && members == 0) {
          std::memset(summary, 0, dim * sizeof(float));
          continue;
        }
        int64_t parts = (count + kernels::kCastQueries - 1) / kernels::kCastQueries;
        if (summary != nullptr) parts = std::max<int64_t>(parts, 1);
        for (int64_t p = 0; p < parts; ++p) {
          const int64_t from = count * p / parts;
          const int64_t to = count * (p + 1) / parts;
          tasks.push_back(
              {&sequence,
               {first_head + n, first_head + n, c, clustering.members + offset, members},
               begin - offset + from,
               begin - offset + to,
               inside_ + (row + from) * dim,
               p == 0 ? summary : nullptr});
        }
        row += count;
      }
    }
  }
  return tasks;
}

// Step 4 for the members in some tiles; with the first tile, step 5 as well.
absl::Status CastWave::AttendInside(int64_t first_head, int64_t heads, int64_t tile_begin,
                                    int64_t tile_end) {
  std::vector<InsideTask> tasks = InsideTasks(first_head, heads, tile_begin, tile_end);
  double flops = 0;
  for (const InsideTask& task : tasks) flops += task.operations(shape_);
  // A thread runs several heads of a cluster in a row if there are enough tasks for all threads, so
  // that a head's rows can be prefetched during the head before.
  const auto count = static_cast<int64_t>(tasks.size());
  const int64_t run = std::clamp<int64_t>(count / (8 * ParallelWorkers()), 1, kHeadsInARow);
  for (int64_t t = 0; t + 1 < count; ++t) {
    const bool same = tasks[t].cluster.members == tasks[t + 1].cluster.members;
    if (same && t % run != run - 1) tasks[t].cluster.next_head = tasks[t + 1].cluster.head;
  }
  struct Worker {
    int64_t task;
    int64_t key;
  };
  std::vector<Worker> workers(ParallelWorkers());
  return ParallelSteps(
      (count + run - 1) / run, flops, control_, [&](int worker, int64_t first, int64_t step) {
        auto& [t, key] = workers[worker];
        if (step == 0) t = first * run, key = 0;
        const int64_t last = std::min(count, (first + 1) * run);
        for (double left = kStepOperations; t < last && left > 0;) {
          const InsideTask& task = tasks[t];
          const int64_t keys = task.cluster.count;
          const double block = task.operations(shape_) / static_cast<double>(keys) *
                               static_cast<double>(kernels::kCastKeyBlock);
          const int64_t blocks = 1 + static_cast<int64_t>(std::min(1e6, left / block));
          const int64_t end = std::min(keys, key + blocks * kernels::kCastKeyBlock);
          kernel_.inside(shape_, task.sequence->in, task.cluster, task.begin, task.end, key, end,
                         task.inside, task.summary, scratch_ + worker * scratch_floats_);
          left -= block * static_cast<double>(end - key) / kernels::kCastKeyBlock;
          key = end < keys ? end : 0;
          t += end < keys ? 0 : 1;
        }
        return t < last;
      });
}

// Step 6.
absl::Status CastWave::Combine(int64_t first_head, int64_t heads, int64_t tile_begin,
                               int64_t tile_end) {
  const std::vector<Task> tasks = TileTasks(heads, tile_begin, tile_end);
  const double flops =
      PairsOf(heads) * static_cast<double>(2 * (spec_.head_dim + spec_.value_dim) + 20);
  const int64_t pieces = PiecesOf(flops, tasks.size());
  return ParallelFor(
      static_cast<int64_t>(tasks.size()) * pieces, flops, control_, [&](int worker, int64_t n) {
        const Task& task = tasks[n / pieces];
        const Sequence& sequence = *task.sequence;
        const Head& head = sequence.heads[task.of_pass];
        const int32_t* const cuts = head.clustering->cuts + task.index * spec_.surrogates;
        const kernels::CastOwnClusters own = {head.clustering->members, cuts,
                                              cuts + spec_.surrogates, head.first_row, inside_};
        kernel_.combine(shape_, sequence.in, first_head + task.of_pass, head.summaries, own,
                        sequence.PieceBegin(task.index, n % pieces, pieces),
                        sequence.PieceBegin(task.index, n % pieces + 1, pieces),
                        scratch_ + worker * scratch_floats_);
      });
}

}  // namespace castor::attention
