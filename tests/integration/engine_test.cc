// The whole engine on the real CPU device: a request gets the same bytes alone and in any batch,
// and runs keep to the device's memory. The tests of attention compare results with float64.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/seeded.h"

namespace castor {
namespace {

// Numbers between 1/2 and 1.
std::vector<std::byte> RandomBytes(std::mt19937& random, DType dtype, int64_t elements) {
  std::vector<std::byte> bytes(static_cast<size_t>(elements) * SizeOf(dtype));
  for (size_t at = 0; at < bytes.size(); at += SizeOf(dtype)) {
    const auto bits = std::bit_cast<uint32_t>(0.5f + static_cast<float>(random() % 128) / 256.0f);
    const uint32_t value = dtype == DType::kFloat32 ? bits : bits >> 16;  // bfloat16
    std::memcpy(&bytes[at], &value, SizeOf(dtype));
  }
  return bytes;
}

struct Problem {
  DType dtype;
  int64_t heads, head_dim, value_dim;
  std::vector<int64_t> query_lengths, key_lengths;
  bool causal;
  double scale;
  std::vector<std::byte> query_bytes, key_bytes, value_bytes;

  AttentionRequest Request() const {
    const auto tensor = [this](const std::vector<std::byte>& bytes, int64_t dim) {
      const int64_t tokens = static_cast<int64_t>(bytes.size() / SizeOf(dtype)) / (heads * dim);
      return TensorInput{dtype, {tokens, heads, dim}, {bytes}};
    };
    AttentionRequest request;
    request.query = tensor(query_bytes, head_dim);
    request.key = tensor(key_bytes, head_dim);
    request.value = tensor(value_bytes, value_dim);
    request.query_lengths = query_lengths;
    request.key_lengths = key_lengths;
    request.softmax_scale = scale;
    request.kernel = Vanilla{causal};
    return request;
  }
};

Problem RandomProblem(std::mt19937& random, int64_t heads, int64_t head_dim, int64_t value_dim,
                      DType dtype, bool causal) {
  Problem problem{dtype, heads, head_dim, value_dim, {}, {}, causal, 0, {}, {}, {}};
  problem.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  int64_t query_tokens = 0;
  int64_t key_tokens = 0;
  for (uint32_t sequences = 1 + random() % 4; sequences > 0; --sequences) {
    const int64_t keys = 1 + random() % (random() % 4 == 0 ? 300 : 40);
    const int64_t queries = causal ? keys : 1 + random() % 60;
    problem.query_lengths.push_back(queries);
    problem.key_lengths.push_back(keys);
    query_tokens += queries;
    key_tokens += keys;
  }
  problem.query_bytes = RandomBytes(random, dtype, query_tokens * heads * head_dim);
  problem.key_bytes = RandomBytes(random, dtype, key_tokens * heads * head_dim);
  problem.value_bytes = RandomBytes(random, dtype, key_tokens * heads * value_dim);
  return problem;
}

class EngineOnCpuTest : public testing::Test {
 protected:
  void SetUp() override { Start(0); }

  void Start(int64_t max_device_bytes) {
    EngineOptions options;
    options.device = "cpu";
    options.max_batch_tokens = 1024;
    options.max_device_bytes = max_device_bytes;
    options.cost_model_budget = std::chrono::seconds(0);
    auto engine = CreateEngine(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  using Outcome = absl::StatusOr<AttentionResult>;

  std::future<Outcome> Submit(AttentionRequest request) {
    std::promise<Outcome> promise;
    auto future = promise.get_future();
    auto ticket = engine_->Submit(std::move(request),
                                  [promise = std::move(promise)](Outcome outcome) mutable {
                                    promise.set_value(std::move(outcome));
                                  });
    if (!ticket.ok()) {
      promise = {};
      future = promise.get_future();
      promise.set_value(ticket.status());
    }
    return future;
  }

  const unsigned seed_ = TestSeed();
  std::mt19937 random_{seed_};
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineOnCpuTest, SameBytesAloneAndInAnyBatch) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  // Few shapes, so that requests share batches.
  std::vector<Problem> problems;
  for (int i = 0; i < 40; ++i) {
    const DType dtype = i % 2 == 0 ? DType::kFloat32 : DType::kBFloat16;
    problems.push_back(RandomProblem(random_, 2, 64, 64, dtype, /*causal=*/i % 3 == 0));
  }
  std::vector<HostBuffer> alone;
  for (const Problem& problem : problems) {
    Outcome outcome = Submit(problem.Request()).get();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_EQ(outcome->report.batch.requests, 1);
    alone.push_back(std::move(outcome->output.data));
  }
  std::atomic<int> shared = 0;
  const auto client = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<size_t> order(problems.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int round = 0; round < 3; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::future<Outcome>> futures;
      for (size_t i : order) futures.push_back(Submit(problems[i].Request()));
      for (size_t n = 0; n < order.size(); ++n) {
        const Outcome outcome = futures[n].get();
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        const HostBuffer& expected = alone[order[n]];
        ASSERT_EQ(outcome->output.data.size(), expected.size());
        EXPECT_EQ(std::memcmp(outcome->output.data.data(), expected.data(), expected.size()), 0)
            << "problem " << order[n] << " in a batch of " << outcome->report.batch.requests;
        if (outcome->report.batch.requests > 1) ++shared;
      }
    }
  };
  std::vector<std::thread> clients;
  for (unsigned i = 0; i < 3; ++i) clients.emplace_back(client, seed_ + i);
  for (std::thread& thread : clients) thread.join();
  EXPECT_GT(shared, 0);  // otherwise nothing was tested
}

TEST_F(EngineOnCpuTest, RunsKeepToTheDevicesMemory) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  constexpr int64_t kMost = int64_t{8} << 20;
  Start(kMost);
  const auto with_clusters = [](const Problem& problem) {
    AttentionRequest request = problem.Request();
    request.kernel = ImprovedClustered{};
    return request;
  };
  std::vector<Problem> problems;
  for (int i = 0; i < 10; ++i) {
    problems.push_back(RandomProblem(random_, 2, 64, 64, DType::kFloat32, /*causal=*/false));
  }
  std::atomic<bool> done = false;
  std::thread watcher([&] {
    while (!done) {
      const LoadStats load = engine_->stats().load;
      ASSERT_LE(load.device_bytes, load.max_device_bytes);
      std::this_thread::yield();
    }
  });
  std::vector<std::future<Outcome>> futures;
  for (int i = 0; i < 200; ++i) {
    const Problem& problem = problems[random_() % problems.size()];
    futures.push_back(Submit(i % 2 == 0 ? with_clusters(problem) : problem.Request()));
  }
  for (auto& future : futures) {
    const Outcome outcome = future.get();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_LE(outcome->report.memory.workspace_bytes, kMost);
  }
  done = true;
  watcher.join();
  EXPECT_EQ(engine_->stats().load.max_device_bytes, kMost);
}

}  // namespace
}  // namespace castor
