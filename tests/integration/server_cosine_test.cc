// The automatic kernel of encoders as a client sees it: a whole server over the real engine on the
// CPU, with a small checkpoint whose texts may be long, since it has no table of positions.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_replace.h"
#include "client/tensor.h"
#include "engine/engine.h"
#include "engine/jobs/cosine_gains.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/support/temporary_folder.h"

namespace castor::testing {
namespace {

// Long enough for approximations to pay.
constexpr int64_t kLongTokens = kSanitized ? 3000 : 8000;
constexpr int64_t kVocabulary = 300;

class ServerCosineTest : public ServerTest, protected Seeded {
 protected:
  // Serves `family` of the golden checkpoints, for texts of up to 16384 tokens if it is "long".
  void Start(const std::string& family = "modernbert_biases", double cosine_share = 0) {
    const std::filesystem::path from = std::filesystem::path(CASTOR_FAMILIES) / family;
    const std::string to = folder_ / family;
    std::filesystem::copy(from, to);
    std::ifstream config(from / "config.json");
    const std::string text((std::istreambuf_iterator<char>(config)), {});
    std::ofstream(to + "/config.json") << absl::StrReplaceAll(
        text, {{"\"max_position_embeddings\": 32,", "\"max_position_embeddings\": 16384,"}});
    EngineOptions options;
    options.device = "cpu";
    options.cpu_threads = 2;
    // Generous, so that a busy machine or a sanitizer does not cut the measuring short.
    options.cost_model_budget = std::chrono::seconds(20);
    static const TemporaryFolder costs;  // measured once for all tests of this program
    options.cost_model_file = costs / "costs";
    options.build = "this test";
    options.cosine_share = cosine_share;
    options.models.push_back({.name = family, .directory = to});
    auto engine = CreateEngine(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    StartServer(TestOptionsWithMetrics(), *std::move(engine));
  }

  v1::EncodeRequest Documents(const std::vector<int64_t>& lengths) {
    v1::EncodeRequest request;
    for (const int64_t length : lengths) {
      for (int64_t i = 0; i < length; ++i) {
        request.mutable_tokens()->add_ids(Uniform(4, kVocabulary - 1));
      }
      request.mutable_tokens()->add_lengths(length);
    }
    return request;
  }

  // A sequence of normal values times `scale`.
  v1::EncodeRequest Embeddings(int64_t tokens, int64_t hidden, float scale) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(static_cast<size_t>(tokens * hidden));
    for (float& value : values) value = normal(random_);
    v1::EncodeRequest request;
    *request.mutable_embeddings()->mutable_values() = client::MakeTensor(values, {tokens, hidden});
    return request;
  }

  v1::EncodeResponse Encode(const v1::EncodeRequest& request) {
    grpc::ClientContext context;
    v1::EncodeResponse response;
    const grpc::Status status = encoder_->Encode(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  v1::EncodeResponse Exactly(v1::EncodeRequest request) {
    request.mutable_vanilla();
    return Encode(request);
  }

  v1::EncodeResponse WithCosine(v1::EncodeRequest request, double min_cosine) {
    request.mutable_automatic()->set_min_cosine(min_cosine);
    return Encode(request);
  }

  std::string OutcomeOf(const v1::EncodeRequest& request) {
    grpc::ClientContext context;
    v1::EncodeResponse response;
    return Outcome(encoder_->Encode(&context, request, &response));
  }

  // Whether the server found that no approximation pays, as it may of code that a sanitizer slows
  // down, of each kind by another factor.
  static bool FoundTooDear(const v1::EncodeResponse& response) {
    return kSanitized && response.kernel().name() == v1::VANILLA &&
           response.kernel().rejected_size() == 0;
  }

  // Of a KernelReport, or a RejectedKernel.
  template <typename Report>
  static std::string ParametersOf(const Report& kernel) {
    return kernel.clustered().ShortDebugString() + " or " +
           kernel.improved_clustered().ShortDebugString();
  }

  // Until there are estimates.
  void Learn() {
    for (int i = 0; i < CosineGains::kFewest; ++i) WithCosine(Documents({kLongTokens}), 0.5);
  }

  // The least of the sequences.
  static double CosineBetween(const v1::EncodeResponse& a, const v1::EncodeResponse& b) {
    const std::vector<float> x = client::ToFloats(a.output()).value();
    const std::vector<float> y = client::ToFloats(b.output()).value();
    const auto width = static_cast<size_t>(a.output().shape(1));
    double least = 1;
    for (size_t at = 0; at < x.size(); at += width) {
      least = std::min(least,
                       CosineOf(std::span(x).subspan(at, width), std::span(y).subspan(at, width)));
    }
    return least;
  }

  TemporaryFolder folder_;
};

TEST_F(ServerCosineTest, ShortTextsAreExactWithoutFurtherAdo) {
  Start();
  const v1::EncodeRequest request = EncodeOf({"a beaver", "builds a dam"});
  const v1::EncodeResponse exact = Exactly(request);
  const v1::EncodeResponse chosen = WithCosine(request, 0.5);
  EXPECT_EQ(chosen.kernel().name(), v1::VANILLA);
  EXPECT_EQ(chosen.kernel().rejected_size(), 0);
  EXPECT_GT(chosen.kernel().predicted_us(), 0);
  EXPECT_FALSE(chosen.has_fidelity());
  EXPECT_EQ(chosen.output().raw(), exact.output().raw());
  // Many of them, too.
  const v1::EncodeResponse many = WithCosine(Documents(std::vector<int64_t>(4096, 3)), 0.5);
  EXPECT_EQ(many.lengths_size(), 4096);
  EXPECT_EQ(many.kernel().rejected_size(), 0);
}

TEST_F(ServerCosineTest, OneThatIsNotAskedForOrIsOneIsExact) {
  Start();
  const v1::EncodeRequest request = Documents({kLongTokens});
  const v1::EncodeResponse exact = Exactly(request);
  for (const double none : {0.0, 1.0}) {
    const v1::EncodeResponse chosen = WithCosine(request, none);
    EXPECT_EQ(chosen.kernel().name(), v1::VANILLA);
    EXPECT_EQ(chosen.kernel().rejected_size(), 0);
    EXPECT_EQ(chosen.output().raw(), exact.output().raw());
  }
}

TEST_F(ServerCosineTest, LearnsFromComparisonsAndThenApproximates) {
  Start();
  const v1::EncodeRequest request = Documents({kLongTokens});
  const v1::EncodeResponse exact = Exactly(request);
  v1::EncodeResponse chosen = WithCosine(request, 0.5);
  if (FoundTooDear(chosen)) GTEST_SKIP() << "by the prices of this build no approximation pays";
  // What is tried may change as prices are learned, and each kernel's gains are its own.
  std::map<std::string, double> cosines;  // by the kernel and its parameters
  std::map<v1::KernelName, int> rejected_runs;
  int compared = 0;
  while (chosen.kernel().name() == v1::VANILLA && compared < 4 * CosineGains::kFewest) {
    EXPECT_EQ(chosen.output().raw(), exact.output().raw());
    ASSERT_EQ(chosen.kernel().rejected_size(), 1);
    const v1::RejectedKernel& rejected = chosen.kernel().rejected(0);
    EXPECT_TRUE(rejected.compared());
    EXPECT_TRUE(rejected.has_improved_clustered() || rejected.has_clustered());
    EXPECT_GT(rejected.measured_us(), 0);
    cosines[ParametersOf(rejected)] = rejected.cosine();
    ++rejected_runs[rejected.name()];
    ++compared;
    chosen = WithCosine(request, 0.5);
  }
  EXPECT_GE(compared, CosineGains::kFewest) << "too little was known";
  ASSERT_NE(chosen.kernel().name(), v1::VANILLA) << chosen.kernel().ShortDebugString();
  EXPECT_EQ(chosen.kernel().rejected_size(), 0);
  ASSERT_TRUE(chosen.has_fidelity());
  EXPECT_GE(chosen.fidelity().cosine(), 0.5);
  EXPECT_EQ(chosen.fidelity().rows(), 16);
  EXPECT_GE(chosen.fidelity().comparisons(), CosineGains::kFewest);
  // What was measured in the comparison is what a client sees.
  if (const auto seen = cosines.find(ParametersOf(chosen.kernel())); seen != cosines.end()) {
    EXPECT_NEAR(CosineBetween(chosen, exact), seen->second, 1e-5);
  }
  const std::string name =
      chosen.kernel().name() == v1::CLUSTERED ? "clustered" : "improved_clustered";
  EXPECT_EQ(Metric("castor_encode_automatic_requests_total{kernel=\"" + name + "\"}"), 1);
  EXPECT_GE(Metric("castor_encode_cosine_turn_count{kernel=\"" + name + "\"}"), 1);
  EXPECT_GE(rejected_runs[chosen.kernel().name()], CosineGains::kFewest);
  EXPECT_EQ(Metric("castor_encode_automatic_rejected_total{kernel=\"" + name + "\"}"),
            rejected_runs[chosen.kernel().name()]);
}

TEST_F(ServerCosineTest, WhereNoApproximationIsNearEnoughTheAnswerIsExact) {
  Start();
  Learn();
  const double impossible = 1 - 1e-9;
  // Of what Learn has asked for: whether an approximation pays was measured at the start.
  const v1::EncodeRequest request = Documents({kLongTokens});
  const v1::EncodeResponse chosen = WithCosine(request, impossible);
  EXPECT_EQ(chosen.kernel().name(), v1::VANILLA);
  EXPECT_FALSE(chosen.has_fidelity());
  EXPECT_EQ(chosen.output().raw(), Exactly(request).output().raw());
  if (FoundTooDear(chosen)) GTEST_SKIP() << "by the prices of this build no approximation pays";
  ASSERT_GT(chosen.kernel().rejected_size(), 0);
  for (const v1::RejectedKernel& rejected : chosen.kernel().rejected()) {
    if (!rejected.has_cosine()) continue;
    EXPECT_LT(rejected.cosine(), impossible);
  }
}

TEST_F(ServerCosineTest, AShareOfTheAnswersIsExactAllTheSame) {
  Start("modernbert_biases", 1);
  Learn();
  const v1::EncodeResponse chosen = WithCosine(Documents({kLongTokens}), 0.5);
  EXPECT_EQ(chosen.kernel().name(), v1::VANILLA);
  if (FoundTooDear(chosen)) GTEST_SKIP() << "by the prices of this build no approximation pays";
  ASSERT_EQ(chosen.kernel().rejected_size(), 1);
  EXPECT_TRUE(chosen.kernel().rejected(0).compared());
}

// The slow twin: every estimate against the true cosine. It is meant to be too high for one request
// in 40.
TEST_F(ServerCosineTest, EstimatesAreSeldomTooHigh) {
  if (kSanitized) GTEST_SKIP() << "at a sanitizer's prices few approximations pay";
  Start();
  Learn();
  int estimates = 0;
  int too_high = 0;
  const int requests = 16;
  for (int i = 0; i < requests; ++i) {
    const v1::EncodeRequest request =
        i % 4 == 0 ? Documents({kLongTokens, kLongTokens - 700}) : Documents({kLongTokens});
    const v1::EncodeResponse chosen = WithCosine(request, 0.01);
    if (FoundTooDear(chosen)) GTEST_SKIP() << "by the prices of this build no approximation pays";
    if (!chosen.has_fidelity()) continue;
    ++estimates;
    too_high += chosen.fidelity().cosine() > CosineBetween(chosen, Exactly(request)) + 1e-6;
  }
  EXPECT_GT(estimates, requests / 2);
  EXPECT_LE(too_high, 3);
}

TEST_F(ServerCosineTest, ValuesThatAreNotFiniteGetTheExactAnswer) {
  Start();
  Learn();
  constexpr int64_t kHidden = 24;
  std::vector<float> values(kLongTokens * kHidden, 0.5f);
  values[77] = std::numeric_limits<float>::quiet_NaN();
  v1::EncodeRequest request;
  *request.mutable_embeddings()->mutable_values() =
      client::MakeTensor(values, {kLongTokens, kHidden});
  request.set_check_finite(false);
  const v1::EncodeResponse chosen = WithCosine(request, 0.5);
  EXPECT_EQ(chosen.kernel().name(), v1::VANILLA);
}

// No norm follows the embeddings of this family, so attention hardly turns large ones.
TEST_F(ServerCosineTest, LargeEmbeddingsTeachNothingAboutSmallOnes) {
  Start("eurobert");
  constexpr int64_t kHidden = 24;
  const auto run = [&](float scale) {
    return WithCosine(Embeddings(kLongTokens, kHidden, scale), 0.9999);
  };
  for (int i = 0; i < 2 * CosineGains::kFewest; ++i) run(3e4f);
  const v1::EncodeResponse small = run(1);
  if (FoundTooDear(small)) GTEST_SKIP() << "by the prices of this build no approximation pays";
  EXPECT_EQ(small.kernel().name(), v1::VANILLA);
  ASSERT_GT(small.kernel().rejected_size(), 0);
  EXPECT_TRUE(small.kernel().rejected(0).compared()) << "nothing is known of such as these";
  EXPECT_LT(small.kernel().rejected(0).cosine(), 1 - 1e-7);
}

TEST_F(ServerCosineTest, RequestsInCompanyKeepTheirOwnAllowances) {
  Start();
  Learn();
  std::vector<std::thread> threads;
  for (const double min_cosine : {0.0, 0.1, 0.5, 0.9, 0.999, 1.0}) {
    threads.emplace_back([&, min_cosine, request = Documents({kLongTokens - 300, kLongTokens})] {
      const v1::EncodeResponse exact = Exactly(request);
      const v1::EncodeResponse chosen = WithCosine(request, min_cosine);
      if (chosen.has_fidelity()) {
        EXPECT_NE(chosen.kernel().name(), v1::VANILLA);
        EXPECT_GE(chosen.fidelity().cosine(), min_cosine);
        EXPECT_GT(min_cosine, 0);
        EXPECT_LT(min_cosine, 1);
      } else {
        EXPECT_EQ(chosen.kernel().name(), v1::VANILLA);
        EXPECT_GT(CosineBetween(chosen, exact), 1 - 1e-5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ServerCosineTest, DeadlinesBetweenTwoRunsLeaveNothingBehind) {
  Start();
  for (int i = 0; i < 8; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(Uniform(5, 300)));
    v1::EncodeRequest request = Documents({kLongTokens});
    request.mutable_automatic()->set_min_cosine(0.9);
    v1::EncodeResponse response;
    const grpc::Status status = encoder_->Encode(&context, request, &response);
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::DEADLINE_EXCEEDED)
        << status.error_message();
  }
  EXPECT_TRUE(AwaitNoBytes());
}

TEST_F(ServerCosineTest, AModelThatRunsVanillaAloneIsExact) {
  Start("mpnet");
  const v1::EncodeRequest request = EncodeOf({"a beaver"});
  const v1::EncodeResponse chosen = WithCosine(request, 0.5);
  EXPECT_EQ(chosen.kernel().name(), v1::VANILLA);
  EXPECT_EQ(chosen.output().raw(), Exactly(request).output().raw());
}

TEST_F(ServerCosineTest, WhatMakesNoSenseIsRefusedByName) {
  Start();
  const v1::EncodeRequest text = EncodeOf({"a beaver"});
  const std::string field = "INVALID_ARGUMENT INVALID_FIELD automatic.min_cosine";
  for (const double bad : {-0.1, 1.1, std::nan("")}) {
    v1::EncodeRequest request = text;
    request.mutable_automatic()->set_min_cosine(bad);
    EXPECT_EQ(OutcomeOf(request), field) << bad;
  }
  v1::EncodeRequest rows = text;
  rows.set_output(v1::TOKEN_EMBEDDINGS);
  rows.mutable_automatic()->set_min_cosine(0.9);
  EXPECT_EQ(OutcomeOf(rows), field);
  v1::EncodeRequest without = text;
  without.mutable_automatic()->set_min_cosine(0.9);
  without.mutable_automatic()->add_allowed(v1::CLUSTERED);
  EXPECT_EQ(OutcomeOf(without), "INVALID_ARGUMENT INVALID_FIELD automatic.allowed");
  v1::AttendRequest attend = AttendOf(3);
  attend.mutable_automatic()->set_min_cosine(0.9);
  AttendCall call;
  EXPECT_EQ(Outcome(call.Run(*attention_, attend)), field);
}

}  // namespace
}  // namespace castor::testing
