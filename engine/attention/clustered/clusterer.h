// What both clusterings of clustered attention on the CPU end with: the queries of one head, sorted
// by cluster.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/passes.h"

namespace castor::attention {

// Clusters one head after another. When the passes end, `order` [queries] holds the tokens by
// cluster, ascending in each, and `begin` [clusters() + 1] holds where each cluster that has
// members begins in `order`, and the end.
class Clusterer : public kernels::Passes {
 public:
  // Of the last finished clustering: how many clusters have members.
  int64_t clusters() const { return clusters_; }

 protected:
  // Memory for so many clusters.
  explicit Clusterer(int64_t most_clusters) : next_(most_clusters) {}

  // Where the next clustering's result goes.
  void WriteTo(int32_t* order, int32_t* begin) {
    order_ = order;
    begin_ = begin;
  }

  // From the numbers of members, those that have none left out.
  void PlaceClusters(std::span<const int32_t> members) {
    clusters_ = 0;
    int32_t at = 0;
    for (size_t c = 0; c < members.size(); ++c) {
      next_[c] = at;
      if (members[c] == 0) continue;
      begin_[clusters_++] = at;
      at += members[c];
    }
    begin_[clusters_] = at;
  }

  // Afterwards, of one range of tokens after another.
  void Sort(std::span<const int32_t> labels, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) order_[next_[labels[i]]++] = static_cast<int32_t>(i);
  }

 private:
  int64_t clusters_ = 0;
  int32_t* order_ = nullptr;
  int32_t* begin_ = nullptr;
  std::vector<int32_t> next_;  // [clusters]: where a cluster's next token goes
};

}  // namespace castor::attention
