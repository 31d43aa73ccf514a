// Every kernel from a client's bytes to its answer: a whole server over the real engine, compared
// with the slow twins.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/tensor.h"
#include "engine/engine.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/clustered_problem.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/clustered.h"
#include "tests/support/twins/vanilla.h"

namespace castor::testing {
namespace {

using attention::CastProblem;
using attention::Elements;
using attention::Spec;

v1::DataType WireType(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return v1::FLOAT16;
    case DType::kBFloat16:
      return v1::BFLOAT16;
    default:
      return v1::FLOAT32;
  }
}

void Fill(DType dtype, const std::vector<int64_t>& shape, const void* data, size_t size,
          v1::Tensor* tensor) {
  tensor->set_dtype(WireType(dtype));
  tensor->mutable_shape()->Assign(shape.begin(), shape.end());
  tensor->set_raw(data, size);
}

void Fill(DType dtype, const std::vector<int64_t>& shape, const Elements& elements,
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
    response_ = ServerTest::Attend(request);
    const std::string& raw = response_.output().raw();
    ASSERT_EQ(raw.size(), problem->output.bytes().size());
    std::memcpy(problem->output.data(), raw.data(), raw.size());
  }

  v1::AttendResponse response_;
};

// What is reported is what ran, and may be sent.
TEST_F(ServerKernelsTest, OptionsBeyondThePaperAreRunAndReported) {
  StartReal();
  for (const auto clustering : {v1::HASH, v1::QUERY_SPACE}) {
    for (const auto mass : {v1::ImprovedClustered::CENTROID, v1::ImprovedClustered::QUERY}) {
      v1::AttendRequest request = AttendOf(150);
      request.mutable_improved_clustered()->set_clusters(20);
      request.mutable_improved_clustered()->set_clustering(clustering);
      request.mutable_improved_clustered()->set_rest_mass(mass);
      const int groups = mass == v1::ImprovedClustered::QUERY ? 4 : 0;
      request.mutable_improved_clustered()->set_rest_groups(groups);
      for (int time = 0; time < 2; ++time) {
        *request.mutable_improved_clustered() =
            ServerTest::Attend(request).kernel().improved_clustered();
        EXPECT_EQ(request.improved_clustered().clustering(), clustering);
        EXPECT_EQ(request.improved_clustered().rest_mass(), mass);
        EXPECT_EQ(request.improved_clustered().rest_groups(), groups);
      }
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
      return ServerTest::Attend(request);
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

// What a tensor holds is looked at when it is copied. resolve_positions_test.cc has the other
// faults.
TEST_F(ServerKernelsTest, BiasesThatAreNoNumbersAreRefusedAndMayHideAllKeys) {
  StartReal();
  attention::OwnedProblem problem(SpecOf(Vanilla{}), {4, 5}, {6, 7});
  problem.Randomize(random_);
  v1::AttendRequest good = RequestOf(problem);
  for (const int64_t length : {6, 7}) good.add_key_lengths(length);
  const auto outcome = [&](const v1::AttendRequest& request) {
    grpc::ClientContext context;
    return Outcome(attention_->Attend(&context, request, &response_));
  };
  const auto fill = [](const std::vector<int64_t>& shape, float value, v1::Tensor* tensor) {
    const std::vector<float> all(static_cast<size_t>(*NumBytes(DType::kFloat32, shape) / 4), value);
    Fill(DType::kFloat32, shape, all.data(), all.size() * sizeof(float), tensor);
  };
  v1::AttendRequest request = good;
  fill({kHeads, 3}, NAN, request.mutable_positions()->mutable_relative_bias());
  EXPECT_EQ(outcome(request), "INVALID_ARGUMENT NON_FINITE_INPUT positions.relative_bias");
  for (const float bias : {NAN, INFINITY}) {
    request = good;
    fill({13}, bias, request.mutable_key_bias());
    EXPECT_EQ(outcome(request), "INVALID_ARGUMENT NON_FINITE_INPUT key_bias");
  }
  // Nobody sees a key: no error, but rows of zeros.
  request = good;
  fill({13}, -INFINITY, request.mutable_key_bias());
  request.set_return_log_sum_exp(true);
  request.mutable_automatic()->set_max_relative_error(0.5);
  EXPECT_EQ(outcome(request), "OK");
  EXPECT_EQ(response_.output().raw().find_first_not_of('\0'), std::string::npos);
  const auto logs = client::ToFloats(response_.log_sum_exp());
  EXPECT_EQ(logs, std::vector<float>(9 * kHeads, -INFINITY));
}

TEST_F(ServerKernelsTest, ServerInfoTellsWhatEachKernelTakes) {
  StartReal();
  grpc::ClientContext describe;
  v1::ServerInfo info;
  ASSERT_TRUE(v1::ServerService::NewStub(channel_)->GetServerInfo(&describe, {}, &info).ok());
  ASSERT_EQ(info.kernels_size(), 4);
  for (const v1::KernelInfo& kernel : info.kernels()) {
    EXPECT_EQ(kernel.log_sum_exp(), kernel.name() != v1::CAST) << kernel.ShortDebugString();
    EXPECT_EQ(kernel.key_bias(), kernel.name() != v1::CAST) << kernel.ShortDebugString();
    EXPECT_EQ(kernel.positions(), kernel.name() == v1::VANILLA) << kernel.ShortDebugString();
    EXPECT_EQ(kernel.softcap(), kernel.name() == v1::VANILLA) << kernel.ShortDebugString();
  }
}

TEST_F(ServerKernelsTest, CastAnswersAsItsTwinInEveryReading) {
  StartReal();
  for (int bits = 0; bits < 16; ++bits) {
    Cast cast;
    const bool single = bits & 1, laplace = bits & 2, plain = bits & 4, per_head = bits & 8;
    if (single) cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
    if (laplace) cast.attention_function = Cast::AttentionFunction::kLaplace;
    if (plain) cast.gate_temperature = Cast::GateTemperature::kNone;
    if (per_head) cast.head_clustering = Cast::HeadClustering::kPerHead;
    const auto drawn = attention::CastProblemWithMargins(SpecOf(cast), {90, 2, 41}, random_);
    CastProblem& made = *drawn;
    v1::AttendRequest request = RequestOf(made);
    v1::Cast& message = *request.mutable_cast();
    FillCast(made, &request);
    if (single) message.set_clustering(v1::Cast::SINGLE_ASSIGNMENT_TOP_K);
    if (laplace) message.set_attention_function(v1::Cast::LAPLACE);
    if (plain) message.set_gate_temperature(v1::Cast::NONE);
    if (per_head) message.set_head_clustering(v1::Cast::PER_HEAD);
    Attend(request, &made);
    EXPECT_EQ(response_.kernel().name(), v1::CAST);
    EXPECT_LE(RelativeError(made.problem, made.Reference()), 1e-5) << "reading " << bits;
  }
}

TEST_F(ServerKernelsTest, SurrogateTokensComeFromALoadedLayer) {
  const auto drawn = attention::CastProblemWithMargins(SpecOf(Cast{}), {70, 12}, random_);
  CastProblem& made = *drawn;
  // One tensor, with a header padded to 8 bytes as writers do.
  const std::string data(reinterpret_cast<const char*>(made.surrogates.data()),
                         made.surrogates.bytes().size());
  std::string header = R"({"layers.0.surrogate_tokens":{"dtype":"F32","shape":[5,3,32],)"
                       R"("data_offsets":[0,)" +
                       std::to_string(data.size()) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  const std::string path =
      ::testing::TempDir() + "castor-cast-" + std::to_string(seed_) + ".safetensors";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), sizeof(length))
      .write(header.data(), static_cast<std::streamsize>(header.size()))
      .write(data.data(), static_cast<std::streamsize>(data.size()));
  StartReal({{.name = "long", .directory = path}});
  std::remove(path.c_str());

  v1::AttendRequest request = RequestOf(made);
  FillCast(made, &request);
  request.mutable_cast()->set_layer("long/0");
  request.mutable_cast()->clear_surrogate_tokens();
  Attend(request, &made);
  EXPECT_LE(RelativeError(made.problem, made.Reference()), 1e-5);

  request.mutable_cast()->set_layer("long/1");
  EXPECT_EQ(Try(request).error_code(), grpc::StatusCode::NOT_FOUND);

  v1::EncodeRequest encode = EncodeOf({"text"});
  encode.set_model("long");
  EXPECT_EQ(Try(encode).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ServerKernelsTest, NonFiniteCastInputsAreRefusedByName) {
  StartReal();
  CastProblem made(SpecOf(Cast{}), {9}, random_);
  made.gate[4] = NAN;
  v1::AttendRequest request = RequestOf(made);
  request.set_check_finite(true);
  FillCast(made, &request);
  EXPECT_EQ(Outcome(Try(request)), "INVALID_ARGUMENT NON_FINITE_INPUT cast.gate");
}

}  // namespace
}  // namespace castor::testing
