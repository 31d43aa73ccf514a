// Runs clustered attention's CUDA kernels on the emulator for a problem of the tests of attention.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/clustered_reference.h"
#include "engine/kernels/cuda/clustered.h"
#include "engine/kernels/cuda/clustered_split.h"
#include "engine/kernels/philox.h"
#include "tests/unit/attention/random_problem.h"

namespace castor::attention {

inline const Clustered& ClusteringOf(const Spec& spec) {
  if (const auto* improved = std::get_if<ImprovedClustered>(&spec.kernel)) return *improved;
  return std::get<Clustered>(spec.kernel);
}

// How the device would run it.
struct CudaPath {
  bool tensor_cores = false;
  bool block_clusters = true;
};

class ClusteredRun {
 public:
  ClusteredRun(const OwnedProblem& problem, const CudaPath& path) : view_(problem.view) {
    namespace cuda = kernels::cuda;
    const Spec& spec = problem.spec;
    const auto* const improved = std::get_if<ImprovedClustered>(&spec.kernel);
    const Clustered& parameters = ClusteringOf(spec);
    shape_.element = spec.dtype == DType::kFloat32   ? kernels::Element::kFloat32
                     : spec.dtype == DType::kFloat16 ? kernels::Element::kFloat16
                                                     : kernels::Element::kBFloat16;
    shape_.heads = spec.heads;
    shape_.head_dim = spec.head_dim;
    shape_.value_dim = spec.value_dim;
    shape_.softmax_scale = static_cast<float>(spec.softmax_scale);
    shape_.clusters = parameters.clusters;
    shape_.iterations = parameters.iterations;
    shape_.bits = parameters.bits;
    shape_.topk = improved ? improved->topk : 0;
    const HashPlanes planes = MakeHashPlanes(parameters, spec.head_dim);
    std::vector<uint32_t> draws;
    for (int32_t s = 0; s < parameters.clusters; ++s) {
      draws.push_back(kernels::Philox(kernels::RandomStream::kCentroid, static_cast<uint32_t>(s), 0,
                                      parameters.seed)[0]);
    }
    plan_ = cuda::PlanClustered(shape_, problem.cu_seqlens_q, problem.cu_seqlens_k,
                                {path.tensor_cores, path.block_clusters});
    // Exactly as large as it says, so that AddressSanitizer sees the end; and full of NaN.
    workspace_.reset(static_cast<std::byte*>(
        std::aligned_alloc(256, std::max<int64_t>(plan_.workspace_bytes, 256))));
    std::fill_n(workspace_.get(), plan_.workspace_bytes, std::byte{0xff});

    cuda::ClusteredProblem on_device;
    on_device.query = view_.query;
    on_device.key = view_.key;
    on_device.value = view_.value;
    on_device.output = view_.output;
    on_device.query_stride = view_.query_stride;
    on_device.key_stride = view_.key_stride;
    on_device.value_stride = view_.value_stride;
    on_device.output_stride = view_.output_stride;
    on_device.offsets = plan_.offsets.data();
    on_device.normals = planes.normals.data();
    on_device.biases = planes.biases.data();
    on_device.draws = draws.data();
    on_device.workspace = workspace_.get();
    EXPECT_EQ(cuda::Run(shape_, plan_, on_device, nullptr), cudaSuccess);
    laid_out_ = cuda::LayOut(shape_, plan_, workspace_.get());
  }

  const kernels::cuda::ClusteredShape& shape() const { return shape_; }
  const kernels::cuda::ClusteredPlan& plan() const { return plan_; }
  const kernels::cuda::ClusteredWorkspace& workspace() const { return laid_out_; }

  // The codes of a sequence in one head.
  std::vector<uint64_t> Codes(int64_t sequence, int64_t head) const {
    return Stretch(laid_out_.codes, sequence, head);
  }
  std::vector<int32_t> Labels(int64_t sequence, int64_t head) const {
    return Stretch(laid_out_.labels, sequence, head);
  }
  std::vector<int32_t> Order(int64_t sequence, int64_t head) const {
    return Stretch(laid_out_.order, sequence, head);
  }

 private:
  struct FreeDeleter {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  template <typename T>
  std::vector<T> Stretch(const T* all, int64_t sequence, int64_t head) const {
    const T* const row = all + head * view_.query_tokens();
    return {row + view_.cu_seqlens_q[sequence], row + view_.cu_seqlens_q[sequence + 1]};
  }

  Problem view_;
  kernels::cuda::ClusteredShape shape_;
  kernels::cuda::ClusteredPlan plan_;
  std::unique_ptr<std::byte, FreeDeleter> workspace_;
  kernels::cuda::ClusteredWorkspace laid_out_;
};

}  // namespace castor::attention
