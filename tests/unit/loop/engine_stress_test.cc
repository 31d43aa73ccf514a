// Thousands of requests of many tenants from several threads, cancelled, expiring and failing at
// random, while the tenants' terms change. Each is answered exactly once, results are correct, and
// nothing is left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/seeded.h"
#include "tests/unit/loop/engine_fixture.h"

namespace castor {
namespace {

constexpr int kThreads = 4;
constexpr int kRequestsPerThread = 2000;

// For attention requests; an encode request's mark is its first character.
bool IsCulprit(int id) { return id % 97 == 1; }
static_assert('t' % 97 != 1);

// Any terms, also those that no file may have.
std::map<std::string, TenantTerms> RandomTerms(std::mt19937& random) {
  using Double = std::numeric_limits<double>;
  using Int = std::numeric_limits<int64_t>;
  constexpr double kWeights[] = {0.001, 1, 1000, 0, -1, Double::quiet_NaN(), Double::infinity()};
  constexpr int64_t kQuotas[] = {0, 0, 1, 2, 20, 500, -1, Int::max(), Int::min()};
  const auto quota = [&] { return kQuotas[random() % std::size(kQuotas)]; };
  std::map<std::string, TenantTerms> tenants;
  for (uint32_t i = random() % 8; i > 0; --i) {
    tenants[std::to_string(random() % 5)] = {.weight = kWeights[random() % std::size(kWeights)],
                                             .max_queued_requests = quota(),
                                             .max_queued_tokens = quota(),
                                             .max_queued_bytes = quota()};
  }
  return tenants;
}

class EngineStressTest : public EngineFixture, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Depth, EngineStressTest, testing::Values(1, 2));

TEST_P(EngineStressTest, EveryRequestIsAnsweredExactlyOnce) {
  const unsigned seed = TestSeed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  script_->depth = GetParam();
  EngineOptions options;
  options.max_queued_requests = 64;
  options.max_batch_requests = 8;
  options.answer_cache = GetParam() == 2 ? 20'000 : 0;
  options.models.push_back({"fake-model", "present"});
  EngineParts parts;
  parts.open_device = [script = script_](const EngineOptions&) {
    return absl::StatusOr<std::unique_ptr<Device>>(std::make_unique<FakeDevice>(script));
  };
  // Not predicted: deadlines are too near to be kept, and pass wherever the request is.
  parts.predict = [](int64_t) { return PredictedTime{}; };
  auto engine = CreateEngineWithParts(options, std::move(parts));
  ASSERT_TRUE(engine.ok()) << engine.status();
  engine_ = *std::move(engine);

  // Culprits fail whenever they run; other batches fail now and then for no reason of their own.
  std::atomic<uint32_t> launches = 0;
  script_->SetHook([&launches](const Marks& marks) {
    const uint32_t launch = launches.fetch_add(1);
    for (int mark : marks) {
      if (IsCulprit(mark)) return MakeError(Reason::kInternal, "a bad request");
    }
    if (marks.size() == 1) return absl::OkStatus();
    if (launch % 7 == 3) return MakeError(Reason::kInternal, "a hiccup");
    if (launch % 7 == 5) return MakeError(Reason::kOutOfMemory, "too much");
    return absl::OkStatus();
  });

  constexpr int kTotal = kThreads * kRequestsPerThread;
  std::vector<std::atomic<int>> answers(kTotal);
  std::atomic<int> wrong = 0;
  std::array<std::atomic<uint64_t>, 4> outcomes{};  // ok, cancelled, expired, else
  std::atomic<uint64_t> refused = 0;
  const auto record = [&](int id, const absl::Status& status) {
    answers[id].fetch_add(1);
    const Reason reason = ReasonOf(status);
    ++outcomes[status.ok()                           ? 0
               : reason == Reason::kCancelled        ? 1
               : reason == Reason::kDeadlineExceeded ? 2
                                                     : 3];
  };

  const auto client = [&](int thread) {
    std::mt19937 random(seed + static_cast<unsigned>(thread));
    std::vector<float> data(8 * 3);
    std::vector<Ticket> tickets;
    for (int i = 0; i < kRequestsPerThread; ++i) {
      const int id = thread * kRequestsPerThread + i;
      CallContext call;
      call.priority = static_cast<Priority>(random() % 3);
      call.tenant = std::to_string(random() % 4 == 0 ? random() % 1000 : random() % 3);
      call.may_run_in_submit = random() % 2 == 0;
      if (random() % 4 == 0) {
        call.deadline =
            std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 500);
      }
      absl::StatusOr<Ticket> ticket;
      if (random() % 3 == 0) {
        EncodeRequest request = TextRequest({"text"});
        request.call = call;
        ticket = engine_->Submit(std::move(request), [&, id](absl::StatusOr<EncodeResult> result) {
          if (result.ok() && result->output.data.as<float>()[0] != 't' + 'e' + 'x' + 't') ++wrong;
          record(id, result.status());
        });
      } else {
        const int64_t tokens = 1 + random() % 3;
        data.assign(static_cast<size_t>(8 * tokens), static_cast<float>(id));
        AttentionRequest request;
        request.query = {DType::kFloat32, {tokens, 1, 8}, {std::as_bytes(std::span(data))}};
        request.key = request.value = request.query;
        request.call = call;
        ticket =
            engine_->Submit(std::move(request), [&, id](absl::StatusOr<AttentionResult> result) {
              if (result.ok() && result->output.data.as<float>()[7] != 2.0f * id) ++wrong;
              if (result.ok() == IsCulprit(id) &&
                  (result.ok() || ReasonOf(result.status()) == Reason::kInternal)) {
                ++wrong;
              }
              record(id, result.status());
            });
      }
      if (!ticket.ok()) {
        answers[id].fetch_add(1);
        ++refused;
        const Reason reason = ReasonOf(ticket.status());
        wrong += reason != Reason::kQueueFull && reason != Reason::kTooLarge &&
                 reason != Reason::kDeadlineExceeded;
        std::this_thread::yield();
        continue;
      }
      tickets.push_back(*ticket);
      if (random() % 4 == 0)
        engine_->Cancel(
            tickets[tickets.size() - 1 - random() % std::min<size_t>(tickets.size(), 8)]);
    }
  };

  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(client, i);
  std::atomic<bool> done = false;
  std::thread terms([&] {
    std::mt19937 random(seed - 1);
    while (!done) {
      engine_->SetTenants(RandomTerms(random));
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  terms.join();
  EXPECT_TRUE(engine_->Drain(TimePoint::max()));

  for (int id = 0; id < kTotal; ++id) ASSERT_EQ(answers[id], 1) << "request " << id;
  EXPECT_EQ(wrong, 0);
  for (const auto& outcome : outcomes) EXPECT_GT(outcome, 0u);
  // A text cancelled while a tokenizer works on it is answered at once; its share of the budgets
  // returns when the tokenizer has dropped it.
  while (engine_->stats().load.inflight_requests > 0) std::this_thread::yield();
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.load.queued_requests, 0);
  EXPECT_EQ(stats.load.inflight_requests, 0);
  EXPECT_EQ(stats.load.inflight_tokens, 0);
  EXPECT_EQ(stats.load.inflight_bytes, 0);
  EXPECT_EQ(stats.memory.host_in_use_bytes, 0);
  uint64_t refusals = 0;
  for (const RefusalStats& row : stats.refusals) refusals += row.count;
  EXPECT_EQ(refusals, refused + outcomes[1] + outcomes[2] + outcomes[3]);
  uint64_t served = 0;
  for (const WorkStats& row : stats.work) served += row.answered();
  EXPECT_EQ(served, outcomes[0]);
  std::printf("%d requests: %d answered, %d cancelled, %d expired, %d failed, %d refused\n", kTotal,
              static_cast<int>(outcomes[0]), static_cast<int>(outcomes[1]),
              static_cast<int>(outcomes[2]), static_cast<int>(outcomes[3]),
              static_cast<int>(refused));
}

}  // namespace
}  // namespace castor
