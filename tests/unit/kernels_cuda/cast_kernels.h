// Runs CAST's kernels on the emulator, from the Spec and Problem that the twin takes.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/attention/cuda/cast_shape.h"
#include "engine/attention/problem.h"
#include "engine/kernels/cuda/cast/cast.h"
#include "engine/kernels/cuda/cast/cast_args.cuh"
#include "tests/support/cuda/cast_stages.h"

namespace castor::kernels::cuda {

// A batch and everything its launch needs. The workspace starts as NaN.
class PreparedCast {
 public:
  PreparedCast(const attention::Spec& spec, const attention::Problem& problem)
      : shape_(attention::cuda::CastShapeOf(spec)),
        cu_seqlens_(problem.cu_seqlens_q.begin(), problem.cu_seqlens_q.end()) {
    tables_ = MakeCastTables(shape_, cu_seqlens_, problem.cast.layer_of_sequence);
    const int64_t bytes = CastWorkspaceBytes(shape_, cu_seqlens_);
    workspace_.reset(static_cast<char*>(std::aligned_alloc(256, bytes)));
    std::memset(workspace_.get(), 0xff, bytes);
    batch_ = attention::cuda::CastBatchOf(problem);
    batch_.cu_seqlens = cu_seqlens_;
    batch_.tables = tables_.data();
    batch_.workspace = workspace_.get();
  }

  void RunAll() { ASSERT_EQ(Run(shape_, batch_, nullptr), cudaSuccess); }

  CastArgs args() const { return MakeCastArgs(shape_, batch_); }

  // The contents of the workspace.
  CastStages stages() const { return CastStages(args()); }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  const CastShape shape_;
  const std::vector<int32_t> cu_seqlens_;
  std::vector<int32_t> tables_;
  std::unique_ptr<char, Free> workspace_;
  CastBatch batch_;
};

}  // namespace castor::kernels::cuda
