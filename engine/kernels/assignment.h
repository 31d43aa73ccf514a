// Assigns tokens to clusters by their affinities: step 3 of CAST (arXiv 2402.04239). The definition
// is serial; these functions run in parallel and give the same members, bit for bit.
//
// Affinities are [clusters, tokens], a row per cluster. They compare as numbers: the two zeros are
// equal, and NaN is less than everything, -Inf included. Functions are re-entrant.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kernels/passes.h"

namespace castor::kernels {

// TOP_K, for one cluster: the `count` <= tokens tokens of greatest affinity, ties to the lower
// token, in ascending order. affinities [tokens], members [count], scratch [2 * tokens]. Allocates
// nothing.
void SelectTop(const float* affinities, int64_t tokens, int64_t count, uint32_t* scratch,
               int32_t* members);

// SINGLE_ASSIGNMENT_TOP_K: of the pairs of token and cluster in decreasing affinity, ties to the
// lower token and then to the lower cluster, each is taken if its token is free and its cluster has
// fewer than `capacity` members.
//
// All pairs are in one strict order, by which both tokens and clusters prefer. So the serial loop's
// result is the only stable matching, and deferred acceptance (Gale and Shapley 1962) finds it in
// rounds: free tokens propose to the best cluster that may still take them, and clusters keep the
// best proposals.
//
// Random affinities take some ten rounds. Where all tokens rank the clusters alike, as with a scale
// of 0, there are as many rounds as clusters, and looking at all clusters in each would take hours.
// So tokens that are still free after some rounds make lists of their next best clusters. With
// these, each token looks at all clusters only a few times.
class SingleAssignment final : public Passes {
 public:
  // The maximum length of a token's list of clusters, 8 bytes an entry; 0: there are none.
  static int64_t ListLength(int64_t clusters) { return clusters <= 64 ? 0 : (clusters + 7) / 8; }

  // Allocates all that it needs. REQUIRES: clusters * capacity >= tokens, capacity >= 1.
  SingleAssignment(int64_t tokens, int64_t clusters, int64_t capacity);

  // Begins with affinities [clusters, tokens]. When the passes end, the members of cluster c are
  // members[offsets[c]] to members[offsets[c + 1]], ascending: offsets [clusters + 1], members
  // [tokens].
  void Start(const float* affinities, int32_t* offsets, int32_t* members);
  void Do(int64_t task) override;
  void Next() override;

 private:
  enum class Stage { kPropose, kAccept, kMembers };

  void BeginRound();
  void SortProposals();
  void CollectFree();
  void BeginMembers();
  void Propose(int64_t chunk);
  void ProposeByScan(int64_t begin, int64_t count);
  int32_t NextChoice(int32_t token);
  int32_t MakeList(int32_t token, uint64_t* list) const;
  void AcceptInto(int64_t cluster);
  void ListMembers(int64_t cluster);

  const int64_t tokens_;
  const int64_t clusters_;
  const int64_t capacity_;
  const float* affinities_ = nullptr;  // [clusters, tokens]
  int32_t* offsets_ = nullptr;
  int32_t* members_ = nullptr;
  Stage stage_ = Stage::kPropose;  // of the current pass
  bool by_list_ = false;           // in this round

  // A claim orders the tokens of a cluster: greater is better, no two are equal, 0 is worse than
  // any. Those of a cluster's members are a heap, the least on top.
  std::vector<uint64_t> claims_;  // [clusters, capacity]
  std::vector<int32_t> sizes_;    // [clusters] how many members there are
  std::vector<uint64_t> least_;   // [clusters] the least of a full cluster's claims, else 0

  std::vector<int32_t> free_;       // [free_count_] tokens
  std::vector<int32_t> choice_;     // [free_count_] the cluster that each proposes to
  std::vector<int32_t> first_;      // [clusters + 1] offsets of its proposals
  std::vector<int32_t> proposals_;  // [free_count_] tokens by cluster, then who is free or -1
  int64_t free_count_ = 0;
  int64_t rounds_ = 0;

  // The clusters a token has yet to propose to, the best last: the affinity's rank above the
  // complement of the cluster. The memory stays untouched unless there are many rounds.
  const int64_t list_length_;
  std::unique_ptr<uint64_t[]> lists_;  // [tokens, list_length_]
  std::vector<int32_t> list_sizes_;    // [tokens]
};

}  // namespace castor::kernels
