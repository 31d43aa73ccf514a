// Every kernel from a client's bytes to its answer: a whole server over the real engine, compared
// with the slow twins. CAST: server_cast_test.cc.

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/tensor.h"
#include "tests/integration/kernels_fixture.h"
#include "tests/support/attention/clustered_problem.h"
#include "tests/support/twins/clustered.h"
#include "tests/support/twins/vanilla.h"

namespace castor::testing {
namespace {

TEST_F(ServerKernelsTest, OptionsBeyondThePaperAnswerAsTheirTwins) {
  StartReal();
  for (const bool clusters : {false, true}) {
    for (const bool mass : {false, true}) {
      ImprovedClustered improved;
      improved.clusters = 20;
      improved.topk = 7;
      v1::ImprovedClustered message;
      message.set_clusters(20);
      message.set_topk(7);
      if (clusters) {
        improved.clustering = Clustered::Clustering::kQuerySpace;
        improved.iterations = DefaultIterations(improved.clustering);
        message.set_clustering(v1::QUERY_SPACE);
      }
      if (mass) {
        improved.rest_mass = ImprovedClustered::RestMass::kQuery;
        message.set_rest_mass(v1::ImprovedClustered::QUERY);
      }
      CastProblem made(SpecOf(improved), {150, 1, 33}, random_);
      attention::RandomizeWithMargins(made.problem, random_);
      v1::AttendRequest request = RequestOf(made);
      *request.mutable_improved_clustered() = message;
      Attend(request, &made);
      const v1::ImprovedClustered& ran = response_.kernel().improved_clustered();
      EXPECT_EQ(ran.clustering(), clusters ? v1::QUERY_SPACE : v1::HASH);
      EXPECT_EQ(ran.rest_mass(),
                mass ? v1::ImprovedClustered::QUERY : v1::ImprovedClustered::CENTROID);
      EXPECT_LE(RelativeError(made.problem,
                              attention::ClusteredReference(made.problem.spec, made.problem.view)),
                attention::Tolerance(DType::kFloat32));
      // What is reported may be sent.
      *request.mutable_improved_clustered() = ran;
      Attend(request, &made);
    }
  }
}

// Keys on three shards, where every query is; the answers merged are the one over all keys.

TEST_F(ServerKernelsTest, AnswersOverShardsOfTheKeysMergeToTheWhole) {
  StartReal();
  for (int round = 0; round < 6; ++round) {
    // Hash clusters are the queries' alone, so that of all approximations this one merges too.
    const bool clustered = round % 2 == 1;
    const DType dtype = attention::kFloatTypes[round / 2];
    // Vanilla has a causal mask and a window, for which each shard says where it is.
    const Kernel kernel =
        clustered ? Kernel(attention::PlainClusters(20)) : Kernel(Vanilla{.causal = true});
    Spec spec = SpecOf(kernel, dtype);
    if (!clustered) spec.window = {.left = 120, .right = -1, .always_visible = 4};
    attention::OwnedProblem whole(spec, {150, 1}, {300, 40});
    if (clustered) attention::RandomizeWithMargins(whole, random_, 2);
    if (!clustered) whole.Randomize(random_, 2);
    std::vector<double> log_sums;
    const std::vector<double> rows =
        clustered ? attention::ClusteredReference(whole.spec, whole.view, &log_sums)
                  : attention::VanillaReference(whole.spec, whole.view, &log_sums);

    // Of each sequence's keys, [begin, end) in eighths.
    const auto ask = [&](int begin, int end) {
      v1::AttendRequest request;
      Fill(dtype, {151, kHeads, kDim}, whole.query, request.mutable_query());
      for (const int64_t length : {150, 1}) request.add_query_lengths(length);
      std::string key;
      std::string value;
      const auto row = static_cast<int64_t>(kHeads * kDim * SizeOf(dtype));
      int64_t tokens = 0;
      for (const auto& [first, keys] : {std::pair(0, 300), std::pair(300, 40)}) {
        const int64_t from = first + keys * begin / 8;
        const int64_t count = first + keys * end / 8 - from;
        if (!clustered) {
          request.mutable_positions()->add_key(from - first);
          request.mutable_positions()->add_query(keys - (first == 0 ? 150 : 1));
        }
        key.append(reinterpret_cast<const char*>(whole.key.data()) + from * row, count * row);
        value.append(reinterpret_cast<const char*>(whole.value.data()) + from * row, count * row);
        request.add_key_lengths(count);
        tokens += count;
      }
      Fill(dtype, {tokens, kHeads, kDim}, key.data(), key.size(), request.mutable_key());
      Fill(dtype, {tokens, kHeads, kDim}, value.data(), value.size(), request.mutable_value());
      if (clustered) {
        request.mutable_clustered()->set_clusters(20);
      } else {
        request.mutable_vanilla()->set_causal(true);
        request.mutable_positions()->mutable_window()->set_left(120);
        request.mutable_positions()->set_always_visible(4);
      }
      request.set_return_log_sum_exp(true);
      return request;
    };
    const auto answer = [&](const v1::AttendRequest& request) {
      grpc::ClientContext context;
      v1::AttendResponse response;
      const grpc::Status status = attention_->Attend(&context, request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      return response;
    };
    v1::AttendRequest all = ask(0, 8);
    const v1::AttendResponse exact = answer(all);
    const auto merged = client::MergeAttention(
        std::vector{answer(ask(3, 4)), answer(ask(4, 8)), answer(ask(0, 3))});
    ASSERT_TRUE(merged.ok()) << merged.status();
    for (const v1::AttendResponse& response : {exact, *merged}) {
      const auto output = client::ToFloats(response.output());
      const auto logs = client::ToFloats(response.log_sum_exp());
      ASSERT_TRUE(output.has_value() && logs.has_value());
      EXPECT_EQ(client::ShapeString(response.log_sum_exp()), "[151, 3]");
      EXPECT_LE(attention::Distance(std::vector<double>(output->begin(), output->end()), rows),
                attention::Tolerance(dtype));
      EXPECT_LE(attention::Distance(std::vector<double>(logs->begin(), logs->end()), log_sums),
                1e-6);
    }

    if (dtype == DType::kFloat32) {
      EXPECT_LE(attention::Distance(*client::ToFloats(merged->output()),
                                    *client::ToFloats(exact.output())),
                1e-6);
    }

    all.set_return_log_sum_exp(false);
    const v1::AttendResponse plain = answer(all);
    EXPECT_FALSE(plain.has_log_sum_exp());
    EXPECT_EQ(plain.output().raw(), exact.output().raw());
  }
}

TEST_F(ServerKernelsTest, SharedHeadsAnswerAsTheirTwins) {
  StartReal();
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t value_dim : {int64_t{kDim}, int64_t{kDim / 2}}) {
      for (int kernel = 0; kernel < 4; ++kernel) {
        Spec spec = SpecOf(kernel == 0   ? Kernel(Vanilla{})
                           : kernel == 1 ? Kernel(attention::PlainClusters(200))
                           : kernel == 2 ? Kernel(attention::ImprovedClusters(200, 7))
                                         : Kernel(Cast{}),
                           dtype);
        spec.kv_heads = 1;
        spec.value_dim = value_dim;
        spec.value_is_key_prefix = value_dim != kDim;
        std::unique_ptr<CastProblem> made;
        if (kernel == 3) {
          made = attention::CastProblemWithMargins(spec, {50, 1, 33}, random_);
        } else {
          made = std::make_unique<CastProblem>(spec, std::vector<int32_t>{150, 1, 33}, random_);
        }
        v1::AttendRequest request = RequestOf(*made);
        if (kernel == 1) request.mutable_clustered()->set_clusters(200);
        if (kernel == 2) request.mutable_improved_clustered()->set_clusters(200);
        if (kernel == 2) request.mutable_improved_clustered()->set_topk(7);
        if (kernel == 3) FillCast(*made, &request);
        SCOPED_TRACE(attention::Describe(spec));
        Attend(request, made.get());
        const attention::Problem& view = made->problem.view;
        EXPECT_LE(attention::RelativeError(
                      made->problem, kernel == 0   ? attention::VanillaReference(spec, view)
                                     : kernel == 3 ? made->Reference()
                                                   : attention::ClusteredReference(spec, view)),
                  attention::Tolerance(dtype));
      }
    }
  }
}

TEST_F(ServerKernelsTest, HeadsAndValuesThatDoNotFitAreNamed) {
  StartReal();
  CastProblem made(SpecOf(Vanilla{}), {9}, random_);
  const auto refusal = [&](auto change) {
    v1::AttendRequest request = RequestOf(made);
    change(request);
    grpc::ClientContext context;
    return Outcome(attention_->Attend(&context, request, &response_));
  };
  const std::string invalid = "INVALID_ARGUMENT INVALID_FIELD ";
  const auto set_heads = [](v1::Tensor* tensor, int64_t heads) {
    tensor->set_shape(1, heads);
    tensor->set_raw(std::string(9 * heads * kDim * sizeof(float), 0));
  };
  EXPECT_EQ(refusal([&](auto& r) { set_heads(r.mutable_key(), 2); }), invalid + "key.shape[1]");
  EXPECT_EQ(refusal([&](auto& r) { set_heads(r.mutable_key(), 6); }), invalid + "key.shape[1]");
  EXPECT_EQ(refusal([&](auto& r) { set_heads(r.mutable_key(), 1); }), invalid + "value.shape[1]");
  EXPECT_EQ(refusal([&](auto& r) { set_heads(r.mutable_value(), 1); }), invalid + "value.shape[1]");
  EXPECT_EQ(refusal([](auto& r) { r.clear_value(); }), invalid + "value");
  EXPECT_EQ(refusal([](auto& r) { r.set_value_dim(kDim); }), invalid + "value_dim");
  EXPECT_EQ(refusal([](auto& r) { r.set_value_is_key_prefix(true); }), invalid + "value");
  for (const int64_t value_dim : {int64_t{0}, int64_t{-1}, kDim + 1}) {
    EXPECT_EQ(refusal([&](auto& r) {
                r.clear_value();
                r.set_value_is_key_prefix(true);
                r.set_value_dim(value_dim);
              }),
              invalid + "value_dim")
        << value_dim;
  }
}

// Any combination of what a request may do to scores.

TEST_F(ServerKernelsTest, PositionsSoftcapsAndKeyBiasesAnswerAsTheirTwins) {
  StartReal();
  for (int round = 0; round < 24; ++round) {
    attention::Spec spec = SpecOf(Vanilla{.causal = round % 2 == 1});
    if (round % 3 == 1) spec.kernel = attention::ImprovedClusters(10, 5);
    spec.log_sum_exp = true;
    const attention::RandomScores scores(spec, random_);
    attention::OwnedProblem problem(spec, {90, 2, 41}, {40, 130, 1});
    if (round % 3 == 1) {
      RandomizeWithMargins(problem, random_);
    } else {
      problem.Randomize(random_);
    }
    v1::AttendRequest request = RequestOf(problem);
    for (const int64_t length : {40, 130, 1}) request.add_key_lengths(length);
    ScoresOf(problem, &request);
    if (round % 3 == 1) {
      request.mutable_improved_clustered()->set_clusters(10);
      request.mutable_improved_clustered()->set_topk(5);
    } else {
      request.mutable_vanilla()->set_causal(round % 2 == 1);
    }
    Attend(request, &problem);
    std::vector<double> log_sums;
    const std::vector<double> rows = round % 3 == 1
                                         ? ClusteredReference(problem.spec, problem.view, &log_sums)
                                         : VanillaReference(problem.spec, problem.view, &log_sums);
    EXPECT_LE(RelativeError(problem, rows), 1e-5) << Describe(problem.spec);
    const auto logs = client::ToFloats(response_.log_sum_exp());
    ASSERT_TRUE(logs.has_value());
    for (size_t i = 0; i < log_sums.size(); ++i) {
      ASSERT_TRUE(attention::IsNear((*logs)[i], log_sums[i], 4e-6)) << i;
    }
  }
}

// What a tensor holds is looked at when it is copied; all else before anything is allocated.

TEST_F(ServerKernelsTest, BadPositionsSoftcapsAndKeyBiasesAreRefused) {
  StartReal();
  attention::OwnedProblem problem(SpecOf(Vanilla{}), {4, 5}, {6, 7});
  problem.Randomize(random_);
  v1::AttendRequest good = RequestOf(problem);
  for (const int64_t length : {6, 7}) good.add_key_lengths(length);
  const auto refused = [&](auto change) {
    v1::AttendRequest request = good;
    change(request);
    grpc::ClientContext context;
    return Outcome(attention_->Attend(&context, request, &response_));
  };
  const auto floats = [](const std::vector<int64_t>& shape, float value, v1::Tensor* tensor) {
    const std::vector<float> all(static_cast<size_t>(*NumBytes(DType::kFloat32, shape) / 4), value);
    Fill(DType::kFloat32, shape, all.data(), all.size() * sizeof(float), tensor);
  };
  const std::string invalid = "INVALID_ARGUMENT INVALID_FIELD ";
  const std::string not_finite = "INVALID_ARGUMENT NON_FINITE_INPUT ";
  EXPECT_EQ(refused([](auto& r) { r.mutable_positions()->mutable_window()->set_left(-2); }),
            invalid + "positions.window.left");
  EXPECT_EQ(refused([](auto& r) { r.mutable_positions()->add_query(INT64_MAX); }),
            invalid + "positions.query");
  EXPECT_EQ(refused([](auto& r) {
              r.mutable_positions()->add_query(0);
              r.mutable_positions()->add_query(INT64_MAX);
            }),
            invalid + "positions.query[1]");
  EXPECT_EQ(refused([](auto& r) { r.mutable_positions()->add_alibi_slopes(1); }),
            invalid + "positions.alibi_slopes");
  EXPECT_EQ(refused([&](auto& r) {
              floats({kHeads, 3}, NAN, r.mutable_positions()->mutable_relative_bias());
            }),
            not_finite + "positions.relative_bias");
  EXPECT_EQ(refused([&](auto& r) {
              floats({kHeads, 2}, 0, r.mutable_positions()->mutable_relative_bias());
            }),
            invalid + "positions.relative_bias.shape");
  EXPECT_EQ(refused([](auto& r) { r.set_softcap(-1); }), invalid + "softcap");
  EXPECT_EQ(refused([](auto& r) { r.set_softcap(NAN); }), invalid + "softcap");
  for (const float bias : {NAN, INFINITY}) {
    EXPECT_EQ(refused([&](auto& r) { floats({13}, bias, r.mutable_key_bias()); }),
              not_finite + "key_bias");
  }
  EXPECT_EQ(refused([&](auto& r) { floats({12}, 0, r.mutable_key_bias()); }),
            invalid + "key_bias.shape[0]");
  EXPECT_EQ(refused([&](auto& r) {
              floats({13}, 0, r.mutable_key_bias());
              r.mutable_key_bias()->clear_raw();
            }),
            invalid + "key_bias.raw");
  for (const bool cap : {false, true}) {
    EXPECT_EQ(refused([&](auto& r) {
                r.mutable_clustered();
                if (cap) {
                  r.set_softcap(1);
                } else {
                  r.mutable_positions()->add_alibi_slopes(1);
                }
              }),
              invalid + (cap ? "softcap" : "positions"));
  }
  // Nobody sees a key: no error, but rows of zeros.
  EXPECT_EQ(refused([&](auto& r) {
              floats({13}, -INFINITY, r.mutable_key_bias());
              r.set_return_log_sum_exp(true);
              r.mutable_automatic()->set_max_relative_error(0.5);
            }),
            "OK");
  EXPECT_EQ(response_.output().raw().find_first_not_of('\0'), std::string::npos);
  const auto logs = client::ToFloats(response_.log_sum_exp());
  EXPECT_EQ(logs, std::vector<float>(9 * kHeads, -INFINITY));
}

}  // namespace
}  // namespace castor::testing
