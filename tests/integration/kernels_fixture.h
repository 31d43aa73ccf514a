// A whole server over the real engine, and requests as its kernels' twins have them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"

namespace castor::testing {

using attention::CastProblem;
using attention::Elements;
using attention::Spec;

inline v1::DataType WireType(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return v1::FLOAT16;
    case DType::kBFloat16:
      return v1::BFLOAT16;
    default:
      return v1::FLOAT32;
  }
}

inline void Fill(DType dtype, const std::vector<int64_t>& shape, const void* data, size_t size,
                 v1::Tensor* tensor) {
  tensor->set_dtype(WireType(dtype));
  tensor->mutable_shape()->Assign(shape.begin(), shape.end());
  tensor->set_raw(data, size);
}

inline void Fill(DType dtype, const std::vector<int64_t>& shape, const Elements& elements,
                 v1::Tensor* tensor) {
  Fill(dtype, shape, elements.data(), elements.bytes().size(), tensor);
}

class ServerKernelsTest : public ServerTest, protected Seeded {
 protected:
  static constexpr int64_t kHeads = 3;
  static constexpr int64_t kDim = 32;
  static constexpr int64_t kSurrogates = 5;

  Spec SpecOf(Kernel kernel, DType dtype = DType::kFloat32) const {
    const int64_t surrogates = std::holds_alternative<Cast>(kernel) ? kSurrogates : 0;
    return attention::MakeSpec(dtype, std::move(kernel), kHeads, kDim, kDim, surrogates);
  }

  static v1::AttendRequest RequestOf(const CastProblem& made) { return RequestOf(made.problem); }
  static v1::AttendRequest RequestOf(const attention::OwnedProblem& problem) {
    const Spec& spec = problem.spec;
    const int64_t keys = problem.view.key_tokens();
    v1::AttendRequest request;
    Fill(spec.dtype, {problem.view.query_tokens(), kHeads, kDim}, problem.query,
         request.mutable_query());
    Fill(spec.dtype, {keys, spec.kv_heads, kDim}, problem.key, request.mutable_key());
    if (spec.value_is_key_prefix) {
      request.set_value_is_key_prefix(true);
      request.set_value_dim(spec.value_dim);
    } else {
      Fill(spec.dtype, {keys, spec.kv_heads, spec.value_dim}, problem.value,
           request.mutable_value());
    }
    for (size_t s = 0; s + 1 < problem.cu_seqlens_q.size(); ++s) {
      request.add_query_lengths(problem.cu_seqlens_q[s + 1] - problem.cu_seqlens_q[s]);
    }
    return request;
  }

  static void FillCast(const CastProblem& made, v1::AttendRequest* request) {
    Fill(made.problem.spec.dtype, {kSurrogates, kHeads, kDim}, made.surrogates,
         request->mutable_cast()->mutable_surrogate_tokens());
    Fill(DType::kFloat32, {static_cast<int64_t>(made.gate.size())}, made.gate.data(),
         made.gate.size() * sizeof(float), request->mutable_cast()->mutable_gate());
  }

  // What the problem's spec does to scores.
  static void ScoresOf(const attention::OwnedProblem& problem, v1::AttendRequest* request) {
    const Spec& spec = problem.spec;
    request->set_return_log_sum_exp(spec.log_sum_exp);
    if (std::holds_alternative<Vanilla>(spec.kernel)) {
      v1::Positions& positions = *request->mutable_positions();
      positions.mutable_window()->set_left(spec.window.left);
      if (spec.window.right >= 0) positions.mutable_window()->set_right(spec.window.right);
      positions.set_always_visible(spec.window.always_visible);
      for (const attention::Place& place : problem.places) {
        const int64_t first_key = spec.window.always_visible - place.visible;
        positions.add_key(first_key);
        positions.add_query(first_key + place.shift);
      }
      const attention::PositionBias& bias = spec.bias;
      for (int64_t h = 0; bias.slopes != nullptr && h < kHeads; ++h) {
        positions.add_alibi_slopes(bias.slopes[h]);
      }
      if (bias.reach >= 0) {
        const int64_t entries = 2 * bias.reach + 1;
        Fill(DType::kFloat32, {kHeads, entries}, bias.table,
             static_cast<size_t>(kHeads * entries) * sizeof(float),
             positions.mutable_relative_bias());
      }
      request->set_softcap(spec.softcap);
    }
    if (spec.key_bias_heads == 0) return;
    std::vector<int64_t> shape = {problem.view.key_tokens()};
    if (spec.key_bias_heads > 1) shape.push_back(spec.kv_heads);
    Fill(DType::kFloat32, shape, problem.key_bias.data(), problem.key_bias.size() * sizeof(float),
         request->mutable_key_bias());
  }

  // Sends the request and stores the answer in the problem's output.
  void Attend(const v1::AttendRequest& request, CastProblem* made) {
    Attend(request, &made->problem);
  }
  void Attend(const v1::AttendRequest& request, attention::OwnedProblem* problem) {
    response_.Clear();
    grpc::ClientContext context;
    const grpc::Status status = attention_->Attend(&context, request, &response_);
    ASSERT_TRUE(status.ok()) << status.error_message();
    const std::string& raw = response_.output().raw();
    ASSERT_EQ(raw.size(), problem->output.bytes().size());
    std::memcpy(problem->output.data(), raw.data(), raw.size());
  }

  v1::AttendResponse response_;
};

}  // namespace castor::testing
