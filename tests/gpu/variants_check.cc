#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/attention/cuda/variants_cuda.h"
#include "engine/attention/scalar_type.h"
#include "tests/gpu/checks.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"

namespace castor::gpu {
namespace {

using attention::Problem;
using attention::Spec;
using attention::Tolerance;
using attention::Variant;
namespace cuda = attention::cuda;

struct FusedRows {
  at::Tensor query, key, value, output;
  std::vector<int32_t> cu_seqlens;
  Problem problem;
};

std::byte* DataOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

// Rows in one fused tensor, as an encoder's query-key-value product leaves them, so the stride
// between tokens is larger than a row.
FusedRows FusedProblem(const Spec& spec, std::mt19937& random, at::Device device) {
  FusedRows made;
  made.cu_seqlens = {0};
  const int sequences = 1 + static_cast<int>(random() % 7);
  for (int s = 0; s < sequences; ++s) {
    made.cu_seqlens.push_back(made.cu_seqlens.back() + 1 + static_cast<int32_t>(random() % 400));
  }
  const int64_t tokens = made.cu_seqlens.back();
  const int64_t row = spec.heads * spec.head_dim;
  const int64_t value_row = spec.heads * spec.value_dim;
  const int64_t key_row = spec.key_row();
  const int64_t stride = row + key_row + spec.value_row();
  const auto options =
      at::TensorOptions().dtype(attention::ScalarTypeOf(spec.dtype)).device(device);
  made.query = at::randn({tokens, stride}, options);
  made.key = made.query.narrow(1, row, key_row);
  made.value = made.query.narrow(1, row + key_row, spec.value_row());
  made.output = at::empty({tokens, value_row}, options);
  Problem& p = made.problem;
  p.query = DataOf(made.query);
  p.key = DataOf(made.key);
  p.value = DataOf(made.value);
  p.output = DataOf(made.output);
  p.query_stride = p.key_stride = p.value_stride = stride;
  p.output_stride = value_row;
  p.value_head_stride = spec.value_dim;
  return made;
}

at::Tensor RunRow(const Variant& variant, const Spec& spec, FusedRows& on) {
  on.problem.cu_seqlens_q = on.cu_seqlens;
  on.problem.cu_seqlens_k = on.cu_seqlens;
  on.output.fill_(NAN);
  if (!variant.run(spec, {&on.problem, 1}, RunToEnd()).ok()) return {};
  return on.output.to(at::kFloat);
}

}  // namespace

void CheckVariants(uint32_t seed, Report& report) {
  report.Section("every row of the variant table against the plain one, fused rows");
  const c10::InferenceMode inference;
  std::mt19937 random(seed);
  const at::Device device(at::kCUDA, 0);
  const std::span<const Variant> rows = cuda::CudaVariants();
  const Variant& plain = *std::find_if(
      rows.begin(), rows.end(), [](const Variant& row) { return row.backend == "cuda-math"; });
  for (const DType dtype : attention::kFloatTypes) {
    for (const int64_t dim : {32, 64, 128, 36, 7}) {
      const auto heads = static_cast<int64_t>(1 + random() % 12);
      Spec spec = attention::MakeSpec(dtype, Vanilla{random() % 2 == 0}, heads, dim, dim);
      spec.softmax_scale = 0.3;
      if (random() % 2 == 0) {
        spec.kv_heads = std::gcd(heads, static_cast<int64_t>(1 + random() % 12));
      }
      FusedRows problem = FusedProblem(spec, random, device);
      try {
        const at::Tensor expected = RunRow(plain, spec, problem);
        for (const Variant& variant : rows) {
          if (&variant == &plain || !variant.supports(spec)) continue;
          const at::Tensor got = RunRow(variant, spec, problem);
          const double error =
              got.defined()
                  ? (at::linalg_vector_norm(got - expected) / at::linalg_vector_norm(expected))
                        .item<double>()
                  : INFINITY;
          report.Check(error <= 2 * Tolerance(dtype), std::string(variant.backend) + ", error " +
                                                          Scientific(error) + ": " +
                                                          Describe(spec));
        }
      } catch (const c10::Error& error) {
        report.Check(false, Describe(spec) + ": " + error.what_without_backtrace());
      }
    }
  }
}

}  // namespace castor::gpu
