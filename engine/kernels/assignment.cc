#include "engine/kernels/assignment.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace castor::kernels {
namespace {

constexpr int64_t kChunk = 512;         // tokens per task that proposes
constexpr int64_t kScannedRounds = 16;  // before lists are built

// Greater for greater affinities, equal for equal ones, 0 only for NaN.
uint32_t Rank(float affinity) {
  if (affinity != affinity) return 0;
  const auto bits = std::bit_cast<uint32_t>(affinity + 0.0f);  // -0 becomes 0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

uint64_t Claim(uint32_t rank, int32_t token) {
  return uint64_t{rank} << 32 | ~static_cast<uint32_t>(token);
}
int32_t TokenOf(uint64_t claim) { return static_cast<int32_t>(~static_cast<uint32_t>(claim)); }

}  // namespace

void SelectTop(const float* affinities, int64_t tokens, int64_t count, uint32_t* scratch,
               int32_t* members) {
  if (count >= tokens) {
    for (int64_t i = 0; i < tokens; ++i) members[i] = static_cast<int32_t>(i);
    return;
  }
  // Finds the last rank that gets in, by its leading bits first: few tokens share those unless
  // their affinities are nearly equal.
  constexpr int kShift = 20;
  uint32_t* const ranks = scratch;
  uint32_t* const candidates = scratch + tokens;
  int32_t histogram[1 << (32 - kShift)] = {};
  for (int64_t i = 0; i < tokens; ++i) {
    ranks[i] = Rank(affinities[i]);
    ++histogram[ranks[i] >> kShift];
  }
  uint32_t bin = (1u << (32 - kShift)) - 1;
  int64_t wanted = count;  // from this bin
  while (histogram[bin] < wanted) wanted -= histogram[bin--];
  int64_t found = 0;
  for (int64_t i = 0; found < histogram[bin]; ++i) {
    candidates[found] = ranks[i];
    found += ranks[i] >> kShift == bin ? 1 : 0;
  }
  std::nth_element(candidates, candidates + (wanted - 1), candidates + found, std::greater<>());
  const uint32_t last = candidates[wanted - 1];

  // The lowest of the tokens with exactly that rank get in.
  int64_t ties = wanted - std::count_if(candidates, candidates + (wanted - 1),
                                        [last](uint32_t rank) { return rank > last; });
  int64_t taken = 0;
  for (int64_t i = 0; taken < count; ++i) {
    members[taken] = static_cast<int32_t>(i);
    const bool tied = ranks[i] == last && ties > 0;
    taken += ranks[i] > last || tied ? 1 : 0;
    ties -= tied ? 1 : 0;
  }
}

SingleAssignment::SingleAssignment(int64_t tokens, int64_t clusters, int64_t capacity)
    : tokens_(tokens),
      clusters_(clusters),
      capacity_(std::min(capacity, tokens)),
      claims_(clusters_ * capacity_),
      sizes_(clusters),
      least_(clusters),
      free_(tokens),
      choice_(tokens),
      first_(clusters + 1),
      proposals_(tokens),
      list_length_(ListLength(clusters)),
      lists_(std::make_unique_for_overwrite<uint64_t[]>(tokens * list_length_)),
      list_sizes_(list_length_ > 0 ? tokens : 0) {}

void SingleAssignment::Start(const float* affinities, int32_t* offsets, int32_t* members) {
  affinities_ = affinities;
  offsets_ = offsets;
  members_ = members;
  std::fill(sizes_.begin(), sizes_.end(), 0);
  std::fill(least_.begin(), least_.end(), 0);
  std::fill(list_sizes_.begin(), list_sizes_.end(), 0);
  rounds_ = 0;
  free_count_ = tokens_;
  for (int64_t i = 0; i < tokens_; ++i) free_[i] = static_cast<int32_t>(i);
  BeginRound();
}

void SingleAssignment::Do(int64_t task) {
  switch (stage_) {
    case Stage::kPropose:
      return Propose(task);
    case Stage::kAccept:
      return AcceptInto(task);
    case Stage::kMembers:
      return ListMembers(task);
  }
}

void SingleAssignment::Next() {
  switch (stage_) {
    case Stage::kPropose:
      SortProposals();
      stage_ = Stage::kAccept;
      pass_ = {clusters_, 20.0 * static_cast<double>(free_count_), false};
      return;
    case Stage::kAccept:
      CollectFree();
      return free_count_ > 0 ? BeginRound() : BeginMembers();
    case Stage::kMembers:
      pass_ = Pass();
  }
}

void SingleAssignment::BeginRound() {
  stage_ = Stage::kPropose;
  by_list_ = list_length_ > 0 && rounds_++ >= kScannedRounds;
  pass_.tasks = (free_count_ + kChunk - 1) / kChunk;
  pass_.operations =
      3.0 * static_cast<double>(free_count_) * static_cast<double>(by_list_ ? 16 : clusters_);
}

void SingleAssignment::BeginMembers() {
  stage_ = Stage::kMembers;
  pass_ = {clusters_, 40.0 * static_cast<double>(tokens_), false};
  offsets_[0] = 0;
  for (int64_t c = 0; c < clusters_; ++c) offsets_[c + 1] = offsets_[c] + sizes_[c];
}

void SingleAssignment::ListMembers(int64_t cluster) {
  int32_t* const begin = members_ + offsets_[cluster];
  const int32_t size = sizes_[cluster];
  for (int32_t n = 0; n < size; ++n) begin[n] = TokenOf(claims_[cluster * capacity_ + n]);
  std::sort(begin, begin + size);
}

// Every free token chooses the best cluster that would take it now. A cluster that has turned it
// down only ever gets better members, so it need not be asked again.
void SingleAssignment::Propose(int64_t chunk) {
  const int64_t begin = chunk * kChunk;
  const int64_t count = std::min(free_count_ - begin, kChunk);
  if (!by_list_) return ProposeByScan(begin, count);
  for (int64_t i = begin; i < begin + count; ++i) choice_[i] = NextChoice(free_[i]);
}

void SingleAssignment::ProposeByScan(int64_t begin, int64_t count) {
  const int32_t* const tokens = free_.data() + begin;
  int64_t best[kChunk];    // rank, -1 without a choice
  int32_t choice[kChunk];  // cluster
  std::fill(best, best + count, -1);
  std::fill(choice, choice + count, 0);
  for (int64_t c = 0; c < clusters_; ++c) {
    const float* const row = affinities_ + c * tokens_;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t rank = Rank(row[tokens[i]]);
      // Clusters come in ascending order: a tie stays with the lower one.
      if (int64_t{rank} > best[i] && Claim(rank, tokens[i]) > least_[c]) {
        best[i] = rank;
        choice[i] = static_cast<int32_t>(c);
      }
    }
  }
  std::copy(choice, choice + count, choice_.begin() + begin);
}

// The same choice, for one token.
int32_t SingleAssignment::NextChoice(int32_t token) {
  uint64_t* const list = lists_.get() + token * list_length_;
  int32_t& size = list_sizes_[token];
  while (true) {
    // Never empty: there is room for every token, so some cluster would take this one.
    if (size == 0) size = MakeList(token, list);
    const uint64_t entry = list[size - 1];
    const int32_t cluster = TokenOf(entry);
    if (Claim(static_cast<uint32_t>(entry >> 32), token) > least_[cluster]) return cluster;
    --size;
  }
}

// Writes the best clusters that would take the token now, in ascending order; returns how many.
int32_t SingleAssignment::MakeList(int32_t token, uint64_t* list) const {
  int64_t size = 0;  // of a heap, the least on top
  for (int64_t c = 0; c < clusters_; ++c) {
    const uint32_t rank = Rank(affinities_[c * tokens_ + token]);
    if (Claim(rank, token) <= least_[c]) continue;
    const uint64_t entry = Claim(rank, static_cast<int32_t>(c));
    if (size < list_length_) {
      list[size++] = entry;
      std::push_heap(list, list + size, std::greater<>());
    } else if (entry > list[0]) {
      std::pop_heap(list, list + size, std::greater<>());
      list[size - 1] = entry;
      std::push_heap(list, list + size, std::greater<>());
    }
  }
  std::sort(list, list + size);
  return static_cast<int32_t>(size);
}

// Sorts the proposals by cluster.
void SingleAssignment::SortProposals() {
  std::fill(first_.begin(), first_.end(), 0);
  for (int64_t i = 0; i < free_count_; ++i) ++first_[choice_[i] + 1];
  for (int64_t c = 0; c < clusters_; ++c) first_[c + 1] += first_[c];
  for (int64_t i = 0; i < free_count_; ++i) proposals_[first_[choice_[i]]++] = free_[i];
  for (int64_t c = clusters_; c > 0; --c) first_[c] = first_[c - 1];
  first_[0] = 0;
}

void SingleAssignment::CollectFree() {
  int64_t free = 0;
  for (int64_t i = 0; i < free_count_; ++i) {
    free_[free] = proposals_[i];
    free += proposals_[i] >= 0 ? 1 : 0;
  }
  free_count_ = free;
}

// A cluster keeps the best of its members and of the tokens that propose.
void SingleAssignment::AcceptInto(int64_t cluster) {
  const float* const row = affinities_ + cluster * tokens_;
  uint64_t* const claims = claims_.data() + cluster * capacity_;
  int32_t& size = sizes_[cluster];
  for (int32_t n = first_[cluster]; n < first_[cluster + 1]; ++n) {
    const uint64_t claim = Claim(Rank(row[proposals_[n]]), proposals_[n]);
    if (size < capacity_) {
      claims[size++] = claim;
      proposals_[n] = -1;
      if (size == capacity_) std::make_heap(claims, claims + size, std::greater<>());
    } else if (claim > claims[0]) {
      proposals_[n] = TokenOf(claims[0]);
      std::pop_heap(claims, claims + size, std::greater<>());
      claims[size - 1] = claim;
      std::push_heap(claims, claims + size, std::greater<>());
    }
  }
  if (size == capacity_) least_[cluster] = claims[0];
}

}  // namespace castor::kernels
