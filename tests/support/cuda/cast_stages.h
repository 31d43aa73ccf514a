// Reads what the stages of CAST's kernels left in a host-readable workspace, and checks it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

#include "engine/kernels/cuda/cast/cast_args.cuh"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/twins/cast.h"

namespace castor::kernels::cuda {

class CastStages {
 public:
  // The pointers in `args` are to host memory and must outlive this object.
  explicit CastStages(const CastArgs& args) : args_(args) {}

  // Affinities of one clustering of one sequence, [tokens, clusters], in the twin's form.
  std::vector<double> Affinities(int64_t s, int64_t clustering) const {
    const int64_t clusters = args_.shape.clusters;
    std::vector<double> affinities(RowAt(s, clustering, 0).tokens * clusters);
    for (int64_t c = 0; c < clusters; ++c) {
      const CastRow row = RowAt(s, clustering, c);
      for (int64_t i = 0; i < row.tokens; ++i) {
        affinities[i * clusters + c] = args_.affinities[row.affinity + i];
      }
    }
    return affinities;
  }
  void SetAffinities(int64_t s, int64_t clustering, const std::vector<float>& affinities) {
    const int64_t clusters = args_.shape.clusters;
    for (int64_t c = 0; c < clusters; ++c) {
      const CastRow row = RowAt(s, clustering, c);
      for (int64_t i = 0; i < row.tokens; ++i) {
        args_.affinities[row.affinity + i] = affinities[i * clusters + c];
      }
    }
  }

  // The selection's result, in the twin's form.
  std::vector<std::vector<int64_t>> Members(int64_t s, int64_t clustering) const {
    std::vector<std::vector<int64_t>> members(args_.shape.clusters);
    for (size_t c = 0; c < members.size(); ++c) {
      const CastRow row = RowAt(s, clustering, static_cast<int64_t>(c));
      const int32_t* const list = args_.members + row.slot;
      members[c].assign(list, list + std::min(args_.counts[row.index], row.size));
    }
    return members;
  }

  // True if the membership words agree with the selection.
  bool WordsAgree(int64_t s, int64_t clustering) const {
    const std::vector<std::vector<int64_t>> members = Members(s, clustering);
    const int64_t rows = int64_t{args_.clusterings} * args_.shape.clusters;
    for (size_t c = 0; c < members.size(); ++c) {
      const CastRow row = RowAt(s, clustering, static_cast<int64_t>(c));
      std::vector<int64_t> by_words;
      for (int64_t i = 0; i < row.tokens; ++i) {
        const Membership word =
            args_.membership[(args_.tiles32[s] + i / 32) * rows + row.index - s * rows];
        if ((word.x >> (i % 32) & 1) == 0) continue;
        const auto before =
            word.y + static_cast<uint32_t>(__builtin_popcount(word.x & ((1u << (i % 32)) - 1)));
        if (before != by_words.size()) return false;
        by_words.push_back(i);
      }
      if (by_words != members[c] || args_.counts[row.index] > row.size) return false;
    }
    return true;
  }

 private:
  CastRow RowAt(int64_t s, int64_t clustering, int64_t cluster) const {
    return RowOf(args_, static_cast<int>(s), static_cast<int>(clustering),
                 static_cast<int>(cluster));
  }

  const CastArgs args_;
};

// Affinities are compared with float64, clusters bit for bit with the serial loop over the same
// affinities.
struct CastStageErrors {
  double worst_affinity = 0;
  bool clusters_are_the_loops = true;
  // False if float64 chooses other clusters because affinities are almost tied; rows may then
  // differ.
  bool clusters_are_exact = true;
};

inline CastStageErrors CompareCastStages(const attention::CastProblem& layer,
                                         const CastStages& stages) {
  using attention::CastMembers;
  const attention::Spec& spec = layer.problem.spec;
  const Cast& cast = std::get<Cast>(spec.kernel);
  const bool per_head = cast.head_clustering == Cast::HeadClustering::kPerHead;
  CastStageErrors errors;
  for (int64_t s = 0; s < layer.problem.view.sequences(); ++s) {
    const int64_t size =
        layer.ClusterSize(layer.problem.cu_seqlens_q[s + 1] - layer.problem.cu_seqlens_q[s]);
    for (int64_t g = 0; g < (per_head ? spec.heads : 1); ++g) {
      const std::vector<double> own = stages.Affinities(s, g);
      const std::vector<double> exact =
          CastAffinities(layer, s, per_head ? g : 0, per_head ? g + 1 : spec.heads);
      for (size_t i = 0; i < exact.size(); ++i) {
        const double error = std::abs(own[i] - exact[i]);
        errors.worst_affinity =
            std::isnan(error) ? INFINITY : std::max(errors.worst_affinity, error);
      }
      const auto members = stages.Members(s, g);
      errors.clusters_are_the_loops =
          errors.clusters_are_the_loops && stages.WordsAgree(s, g) &&
          members == CastMembers(own, spec.surrogates, size, cast.clustering);
      errors.clusters_are_exact =
          errors.clusters_are_exact &&
          members == CastMembers(exact, spec.surrogates, size, cast.clustering);
    }
  }
  return errors;
}

}  // namespace castor::kernels::cuda
