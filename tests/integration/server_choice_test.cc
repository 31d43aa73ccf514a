// The automatic kernel and the fidelity probe as a client sees them: a whole server over the real
// engine on the CPU.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "client/tensor.h"
#include "engine/engine.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"

namespace castor::testing {
namespace {

// Long enough for approximations to pay.
constexpr int64_t kLong = kSanitized ? 2000 : 4000;

class ServerChoiceTest : public ServerTest {
 protected:
  static constexpr int64_t kHeads = 2;
  static constexpr int64_t kDim = 32;

  void Start() {
    EngineOptions options;
    options.device = "cpu";
    options.cpu_threads = 2;
    // Generous, so that a busy machine or a sanitizer does not cut the measuring short.
    options.cost_model_budget = std::chrono::seconds(20);
    // Measured once for all tests of this program.
    static const std::string folder = [] {
      std::string pattern = ::testing::TempDir() + "castor-choice-XXXXXX";
      return std::string(mkdtemp(pattern.data()));
    }();
    static const struct Cleaner {
      ~Cleaner() { std::filesystem::remove_all(folder); }
    } cleaner;
    options.cost_model_file = folder + "/costs";
    options.build = "this test";
    auto engine = CreateEngine(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    info_ = (*engine)->info();
    StartServer(TestOptionsWithMetrics(), *std::move(engine));
  }

  // Queries in a few tight groups, as in trained models; keys and values at random. Clustering the
  // queries loses next to nothing.
  v1::AttendRequest Structured(int64_t tokens, double spread = 1e-3) {
    std::normal_distribution<float> normal;
    constexpr int64_t kRow = kHeads * kDim;
    constexpr int kGroups = 8;  // all get one of 100 initial centroids, but once in 100,000
    std::vector<float> centres(kGroups * kRow);
    for (float& x : centres) x = normal(random_);
    std::vector<float> query(tokens * kRow), key(tokens * kRow), value(tokens * kRow);
    for (int64_t i = 0; i < tokens; ++i) {
      const auto group = static_cast<int64_t>(random_() % kGroups);
      for (int64_t e = 0; e < kRow; ++e) {
        query[i * kRow + e] =
            centres[group * kRow + e] + static_cast<float>(spread) * normal(random_);
        key[i * kRow + e] = normal(random_);
        value[i * kRow + e] = normal(random_);
      }
    }
    v1::AttendRequest request;
    *request.mutable_query() = client::MakeTensor(query, {tokens, kHeads, kDim});
    *request.mutable_key() = client::MakeTensor(key, {tokens, kHeads, kDim});
    *request.mutable_value() = client::MakeTensor(value, {tokens, kHeads, kDim});
    return request;
  }

  // ||a - b|| / ||b|| over all elements.
  static double Distance(const v1::Tensor& a, const v1::Tensor& b) {
    const auto x = client::ToFloats(a).value();
    const auto y = client::ToFloats(b).value();
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      difference += (x[i] - y[i]) * (x[i] - y[i]);
      norm += y[i] * y[i];
    }
    return std::sqrt(difference / norm);
  }

  const unsigned seed_ = TestSeed();
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937 random_{seed_};
  EngineInfo info_;
};

TEST_F(ServerChoiceTest, StructuredInputsGetAnApproximationWithinTheAllowance) {
  Start();
  ASSERT_EQ(info_.cost_model.examples.size(), 3u) << info_.cost_model.note;
  v1::AttendRequest request = Structured(kLong);
  const v1::AttendResponse exact = Attend(request);
  request.mutable_automatic()->set_max_relative_error(0.1);
  const v1::AttendResponse chosen = Attend(request);
  EXPECT_NE(chosen.kernel().name(), v1::VANILLA);
  EXPECT_NE(chosen.kernel().name(), v1::CAST);
  EXPECT_GT(chosen.kernel().predicted_us(), 0);
  EXPECT_EQ(chosen.kernel().measured_us(), chosen.timing().compute_us());
  // With the fewest clusters a group may be left without one.
  for (const v1::RejectedKernel& rejected : chosen.kernel().rejected()) {
    EXPECT_GT(rejected.relative_error(), 0.1);
    EXPECT_TRUE(rejected.has_clustered() || rejected.has_improved_clustered());
  }
  ASSERT_TRUE(chosen.has_fidelity());
  EXPECT_EQ(chosen.fidelity().rows(), 32);
  EXPECT_LE(chosen.fidelity().relative_error(), 0.1);
  EXPECT_GT(chosen.fidelity().probe_us(), 0);
  EXPECT_LT(Distance(chosen.output(), exact.output()), 0.2) << "the estimate is near the truth";
  // The same request again.
  const v1::AttendResponse again = Attend(request);
  EXPECT_EQ(again.kernel().name(), chosen.kernel().name());
  EXPECT_EQ(again.output().raw(), chosen.output().raw());
  EXPECT_EQ(again.fidelity().relative_error(), chosen.fidelity().relative_error());
}

TEST_F(ServerChoiceTest, WhereNoApproximationIsCloseEnoughTheAnswerIsExact) {
  Start();
  // Queries without structure: nothing to cluster.
  v1::AttendRequest request = Structured(kLong, /*spread=*/3);
  const v1::AttendResponse exact = Attend(request);
  request.mutable_automatic()->set_max_relative_error(1e-4);
  const v1::AttendResponse chosen = Attend(request);
  EXPECT_EQ(chosen.kernel().name(), v1::VANILLA);
  EXPECT_EQ(chosen.output().raw(), exact.output().raw());
  EXPECT_FALSE(chosen.has_fidelity());
  ASSERT_GT(chosen.kernel().rejected_size(), 0);
  for (const v1::RejectedKernel& rejected : chosen.kernel().rejected()) {
    EXPECT_GT(rejected.relative_error(), 1e-4);
    EXPECT_GT(rejected.measured_us(), 0);
  }
  EXPECT_EQ(Metric("castor_automatic_requests_total{kernel=\"vanilla\"}"), 1);
}

}  // namespace
}  // namespace castor::testing
