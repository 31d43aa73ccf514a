// CAST's kernels on the emulator, from the Spec and Problem that the twin takes.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/attention/cuda/cast_shape.h"
#include "engine/attention/problem.h"
#include "engine/kernels/cuda/cast.h"
#include "engine/kernels/cuda/cast_args.cuh"

namespace castor::kernels::cuda {

// A batch with what its launch needs. The workspace starts as NaN.
class PreparedCast {
 public:
  PreparedCast(const attention::Spec& spec, const attention::Problem& problem,
               int cluster_blocks = 8)
      : shape_(attention::cuda::CastShapeOf(spec)),
        cu_seqlens_(problem.cu_seqlens_q.begin(), problem.cu_seqlens_q.end()) {
    tables_ = MakeCastTables(shape_, cu_seqlens_, problem.cast.layer_of_sequence);
    const int64_t bytes = CastWorkspaceBytes(shape_, cu_seqlens_);
    workspace_.reset(static_cast<char*>(std::aligned_alloc(256, bytes)));
    std::memset(workspace_.get(), 0xff, bytes);
    batch_.query = problem.query;
    batch_.key = problem.key;
    batch_.value = problem.value;
    batch_.output = problem.output;
    batch_.surrogates = problem.cast.surrogates;
    batch_.gate = problem.cast.gate;
    batch_.query_stride = problem.query_stride;
    batch_.key_stride = problem.key_stride;
    batch_.value_stride = problem.value_stride;
    batch_.output_stride = problem.output_stride;
    batch_.cu_seqlens = cu_seqlens_;
    batch_.tables = tables_.data();
    batch_.workspace = workspace_.get();
    batch_.cluster_blocks = cluster_blocks;
    batch_.early_launches = cluster_blocks > 1;
  }

  void RunAll() { ASSERT_EQ(Run(shape_, batch_, nullptr), cudaSuccess); }

  CastArgs args() const { return MakeCastArgs(shape_, batch_); }

  // Of one clustering of one sequence: [tokens, clusters], as the twin has it.
  std::vector<double> Affinities(int64_t s, int64_t clustering) const {
    const int64_t tokens = cu_seqlens_[s + 1] - cu_seqlens_[s];
    const float* const rows = args().affinities + AffinityRow(s, clustering);
    std::vector<double> affinities(tokens * shape_.clusters);
    for (int64_t c = 0; c < shape_.clusters; ++c) {
      for (int64_t i = 0; i < tokens; ++i) {
        affinities[i * shape_.clusters + c] = rows[c * tokens + i];
      }
    }
    return affinities;
  }
  void SetAffinities(int64_t s, int64_t clustering, const std::vector<float>& affinities) {
    const int64_t tokens = cu_seqlens_[s + 1] - cu_seqlens_[s];
    float* const rows = args().affinities + AffinityRow(s, clustering);
    for (int64_t c = 0; c < shape_.clusters; ++c) {
      for (int64_t i = 0; i < tokens; ++i) {
        rows[c * tokens + i] = affinities[i * shape_.clusters + c];
      }
    }
  }

  // What the selection wrote, in the twin's form. Checks that the membership words say the same.
  std::vector<std::vector<int64_t>> Members(int64_t s, int64_t clustering) const {
    const CastArgs a = args();
    const int64_t rows = int64_t{a.clusterings} * shape_.clusters;
    const int64_t tokens = cu_seqlens_[s + 1] - cu_seqlens_[s];
    const int64_t size = a.slots[s + 1] - a.slots[s];
    std::vector<std::vector<int64_t>> members(shape_.clusters);
    for (int64_t c = 0; c < shape_.clusters; ++c) {
      const int64_t row = clustering * shape_.clusters + c;
      const int32_t* const list = a.members + a.slots[s] * rows + row * size;
      const int32_t count = a.counts[s * rows + row];
      EXPECT_LE(count, size);
      members[c].assign(list, list + count);
      std::vector<int64_t> by_words;
      for (int64_t i = 0; i < tokens; ++i) {
        const Membership word = a.membership[(a.tiles32[s] + i / 32) * rows + row];
        if ((word.x >> (i % 32) & 1) == 0) continue;
        EXPECT_EQ(word.y + __builtin_popcount(word.x & ((1u << (i % 32)) - 1)), by_words.size());
        by_words.push_back(i);
      }
      EXPECT_EQ(by_words, members[c]);
    }
    return members;
  }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  int64_t AffinityRow(int64_t s, int64_t clustering) const {
    const int64_t tokens = cu_seqlens_[s + 1] - cu_seqlens_[s];
    return (cu_seqlens_[s] * int64_t{args().clusterings} + clustering * tokens) * shape_.clusters;
  }

  const CastShape shape_;
  const std::vector<int32_t> cu_seqlens_;
  std::vector<int32_t> tables_;
  std::unique_ptr<char, Free> workspace_;
  CastBatch batch_;
};

}  // namespace castor::kernels::cuda
