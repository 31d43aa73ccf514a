// The answer cache, through the engine: which requests share an answer, and how long answers live.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "tests/support/seeded.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/loop/cache/answer_cache_fixture.h"

namespace castor {
namespace {

TEST_F(AnswerCacheTest, AnEqualRequestGetsTheSameBytesWithoutARun) {
  StartWithModel();
  const auto first = Run(TextRequest({"ab", "c"}));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->report.batch.cached);
  clock_->Advance(std::chrono::milliseconds(5));
  const auto again = Run(TextRequest({"ab", "c"}));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->report.batch.cached);
  EXPECT_EQ(script_->batches().size(), 1U);
  EXPECT_EQ(BytesOf(again->output), BytesOf(first->output));
  EXPECT_EQ(again->output.data.as<float>()[0], 'a' + 'b');
  EXPECT_EQ(again->output.shape, first->output.shape);
  EXPECT_EQ(again->output.dtype, first->output.dtype);
  EXPECT_EQ(again->lengths, first->lengths);
  EXPECT_EQ(again->token_counts, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(again->truncated, first->truncated);
  EXPECT_EQ(again->model, "m");
  const ExecutionReport& report = again->report;
  EXPECT_EQ(report.kernel.device, first->report.kernel.device);
  EXPECT_EQ(report.kernel.backend, "fake-vanilla");
  EXPECT_EQ(report.kernel.measured_us, 0);
  EXPECT_EQ(report.timing.queue_us, 0);
  EXPECT_EQ(report.timing.compute_us, 0);
  EXPECT_EQ(report.batch.requests, 0);
  EXPECT_EQ(report.batch.tokens, 0);
  EXPECT_EQ(report.batch.begun, clock_->Now());

  const WorkStats work = engine_->stats().work.back();
  EXPECT_EQ(work.cache.hits, 1U);
  EXPECT_EQ(work.cache.misses, 1U);
  EXPECT_GT(work.cache.bytes, 32);
  EXPECT_EQ(work.answered(), 2U);
  EXPECT_EQ(work.batches, 1U);
  EXPECT_EQ(work.queue_seconds.count(), 1U) << "a hit does not wait";
}

TEST_F(AnswerCacheTest, IdsShareTheAnswerOfTheTextThatHasThem) {
  StartWithModel();
  EXPECT_FALSE(Hits(TextRequest({"ab"})));
  EXPECT_TRUE(Hits(Ids({'a', 'b'})));
  EXPECT_FALSE(Hits(Ids({'b', 'a'})));
  EXPECT_FALSE(Hits(Ids({'a'})));
  EXPECT_FALSE(Hits(Ids({'a', 'b', 0})));
  EncodeRequest cut = Ids({'a', 'b'});
  std::get<TokenInput>(cut.input).lengths = {1, 1};
  EXPECT_FALSE(Hits(cut));
  std::get<TokenInput>(cut.input).lengths = {2};
  EXPECT_TRUE(Hits(cut));
  std::get<TokenInput>(cut.input).type_ids = {0, 1};
  EXPECT_FALSE(Hits(cut));
}

TEST_F(AnswerCacheTest, OffByDefault) {
  options_.answer_cache = EngineOptions().answer_cache;
  StartWithModel();
  EXPECT_FALSE(Hits(Ids({1})));
  EXPECT_FALSE(Hits(Ids({1})));
  EXPECT_EQ(Stats().misses, 0U);
}

TEST_F(AnswerCacheTest, RequestsThatDifferInAnOptionOfTheRowsDoNotMeet) {
  StartWithModel();
  const std::vector<std::function<void(EncodeRequest&)>> changes = {
      [](EncodeRequest&) {},
      [](EncodeRequest& r) { r.output = EncodeOutput::kPooled; },
      [](EncodeRequest& r) { r.output = EncodeOutput::kTokenEmbeddings; },
      [](EncodeRequest& r) { r.outputs = {EncodeOutput::kPooled}; },
      [](EncodeRequest& r) {
        r.outputs = {EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings};
      },
      [](EncodeRequest& r) {
        r.outputs = {EncodeOutput::kTokenEmbeddings, EncodeOutput::kPooled};
      },
      [](EncodeRequest& r) { r.output_type = OutputType::kFloat16; },
      [](EncodeRequest& r) { r.output_type = OutputType::kUInt8; },
      [](EncodeRequest& r) { r.pooling = Pooling::kMean; },
      [](EncodeRequest& r) { r.pooling = Pooling::kCls; },
      [](EncodeRequest& r) { r.normalize = false; },
      [](EncodeRequest& r) { r.normalize = true; },
      [](EncodeRequest& r) { r.dimensions = 2; },
      [](EncodeRequest& r) { r.dimensions = 4; },
      [](EncodeRequest& r) { r.task = "one"; },
      [](EncodeRequest& r) { r.task = "two"; },
      [](EncodeRequest& r) {
        r.spans.ranges = {{0, 0, 1}, {1, 0, 1}};
      },
      [](EncodeRequest& r) {
        r.spans.ranges = {{0, 0, 1}, {0, 0, 1}};
      },
      [](EncodeRequest& r) {
        r.spans.ranges = {{0, 0, 2}, {1, 0, 1}};
      },
      [](EncodeRequest& r) { r.kernel = Vanilla{.causal = true}; },
  };
  const auto changed = [&](size_t i) {
    EncodeRequest request = Ids({5, 6, 7, 8});
    std::get<TokenInput>(request.input).lengths = {2, 2};
    changes[i](request);
    return request;
  };
  for (const bool hits : {false, true}) {
    for (size_t i = 0; i < changes.size(); ++i) EXPECT_EQ(Hits(changed(i)), hits) << i;
  }
  // What does not change rows does not keep requests apart.
  const std::vector<std::function<void(EncodeRequest&)>> harmless = {
      [](EncodeRequest& r) { r.call.request_id = "other"; },
      [](EncodeRequest& r) { r.call.priority = Priority::kHigh; },
      [](EncodeRequest& r) { r.model = "m"; },
      [&](EncodeRequest& r) { r.generation = engine_->models()->front().generation; },
      [](EncodeRequest& r) { r.kernel = Vanilla{}; },
      [](EncodeRequest& r) { r.kernel = Automatic{}; },
      [](EncodeRequest& r) { r.truncate = false; },
      [](EncodeRequest& r) { r.max_tokens = 300; },
  };
  for (size_t i = 0; i < harmless.size(); ++i) {
    EncodeRequest request = changed(0);
    harmless[i](request);
    EXPECT_TRUE(Hits(std::move(request))) << i;
  }
}

TEST_F(AnswerCacheTest, NoTenantSeesWhatAnotherHasAsked) {
  StartWithModel();
  for (const char* tenant : {"", "a", "ab", "b"}) {
    EXPECT_FALSE(Hits(Ids({1, 2}, tenant))) << tenant;
    EXPECT_TRUE(Hits(Ids({1, 2}, tenant))) << tenant;
  }
  // Streams of no tenant have names of their own in the queue, and are all of that one tenant.
  EXPECT_TRUE(Hits(Ids({1, 2}, "\n1")));
  EXPECT_FALSE(Hits(Ids({3}, "\n1")));
  EXPECT_TRUE(Hits(Ids({3}, "\n2")));
  EXPECT_TRUE(Hits(Ids({3})));
}

TEST_F(AnswerCacheTest, AliasesShareAnswersUnderTheirOwnNames) {
  script_->make_model = [](const ModelSource& source) {
    return std::make_shared<RowsModel>(source.name, 4);
  };
  const TemporaryFolder folder;
  options_.models = {{"m", folder.path()}, {"alias", folder.path()}};
  Start();
  EncodeRequest request = Ids({1});
  request.model = "m";
  EXPECT_FALSE(Hits(request));
  request.model = "alias";
  const auto aliased = Run(request);
  ASSERT_TRUE(aliased.ok());
  EXPECT_TRUE(aliased->report.batch.cached);
  EXPECT_EQ(aliased->model, "alias");
}

TEST_F(AnswerCacheTest, RowsThatAreNotFiniteAndErrorsAreNotKept) {
  StartWithModel();
  EncodeRequest request = Ids({FakeDevice::kNotANumber, 1});
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(Hits(request));
  request.output_type = OutputType::kBinary;  // which does not show NaN
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(Hits(request));
  std::atomic<int> failures = 2;  // of the first try, and the second
  script_->SetHook([&](const Marks&) {
    return failures-- > 0 ? MakeError(Reason::kInternal, "broken") : absl::OkStatus();
  });
  EXPECT_EQ(ReasonOf(Run(Ids({7})).status()), Reason::kInternal);
  EXPECT_FALSE(Hits(Ids({7})));
  EXPECT_TRUE(Hits(Ids({7})));
}

TEST_F(AnswerCacheTest, AnswersOutliveTheirEntriesAndTheEngine) {
  options_.answer_cache = 20'000;
  StartWithModel(256);
  ASSERT_FALSE(Hits(Ids({1})));
  const auto held = Run(Ids({1}));
  ASSERT_TRUE(held.ok() && held->report.batch.cached);
  for (int64_t i = 2; i < 30; ++i) ASSERT_FALSE(Hits(Ids({i})));
  EXPECT_FALSE(Hits(Ids({1}))) << "it was dropped";
  EXPECT_EQ(held->output.data.as<float>()[0], 1);
  engine_.reset();
  EXPECT_EQ(held->output.data.as<float>()[0], 1);
}

// A hit overtakes the queue, and is not refused while the device is occupied.
TEST_F(AnswerCacheTest, HitsDoNotWaitForTheDevice) {
  StartWithModel();
  ASSERT_FALSE(Hits(TextRequest({"a"})));
  Occupy();
  EXPECT_TRUE(Hits(TextRequest({"a"})));
  EXPECT_TRUE(Hits(Ids({'a'})));
  script_->Open();
}

TEST_F(AnswerCacheTest, NothingIsLostInADrain) {
  StartWithModel();
  ASSERT_FALSE(Hits(TextRequest({"a"})));
  std::atomic<int> answered = 0;
  constexpr int kRequests = 200;
  int refused = 0;
  std::thread drain([&] { engine_->Drain(TimePoint::max()); });
  for (int i = 0; i < kRequests; ++i) {
    auto ticket = engine_->Submit(i % 2 == 0 ? TextRequest({"a"}) : Ids({'a'}),
                                  [&](const absl::StatusOr<EncodeResult>& result) {
                                    EXPECT_TRUE(result.ok()) << result.status();
                                    ++answered;
                                  });
    if (ticket.ok()) continue;
    ++refused;
    EXPECT_EQ(ReasonOf(ticket.status()), Reason::kDraining);
  }
  drain.join();
  EXPECT_EQ(answered + refused, kRequests);
  EXPECT_EQ(ReasonOf(Run(Ids({'a'})).status()), Reason::kDraining);
}

class CachedResidentsTest : public AnswerCacheTest {
 protected:
  CachedResidentsTest() {
    options_.catalog = {.control = ModelControl::kExplicit, .root = root_.path()};
    script_->make_model = [](const ModelSource& source) {
      return std::make_shared<RowsModel>(source.name, 4);
    };
    std::filesystem::create_directories(root_ / "m");
    std::ofstream(root_ / "m/config.json") << "{}";
    const std::string header = R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    const uint64_t size = header.size();
    std::ofstream file(root_ / "m/model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof(size));
    file << header << "1234";
  }
  ~CachedResidentsTest() override { engine_.reset(); }

  absl::Status Load() {
    std::promise<absl::Status> told;
    engine_->LoadModel("m", "", /*replace=*/true,
                       [&](const absl::Status& s) { told.set_value(s); });
    return told.get_future().get();
  }
  absl::Status Unload() {
    std::promise<absl::Status> told;
    engine_->UnloadModel("m", [&](const absl::Status& s) { told.set_value(s); });
    return told.get_future().get();
  }

  const TemporaryFolder root_;
};

TEST_F(CachedResidentsTest, AModelThatIsLoadedAgainComputesAnew) {
  Start();
  ASSERT_TRUE(Load().ok());
  for (int64_t i = 0; i < 300; ++i) ASSERT_FALSE(Hits(Ids({i})));
  ASSERT_TRUE(Hits(Ids({1})));
  const int64_t bytes = Stats().bytes;
  ASSERT_TRUE(Load().ok());
  EXPECT_FALSE(Hits(Ids({1})));
  while (Stats().bytes > bytes / 100) std::this_thread::yield();  // those of the old one are gone
  EXPECT_TRUE(Hits(Ids({1})));
  ASSERT_TRUE(Unload().ok());
  EXPECT_EQ(Stats().bytes, 0);
  ASSERT_TRUE(Load().ok());
  EXPECT_FALSE(Hits(Ids({1})));
}

// Else its prices would be those of answers that nothing computed.
TEST_F(CachedResidentsTest, TheLoaderMeasuresRuns) {
  warm_up_ = true;
  size_t runs[2] = {};
  for (const int64_t room : {int64_t{0}, kCacheRoom}) {
    engine_.reset();
    options_.answer_cache = room;
    Start();
    ASSERT_TRUE(Load().ok());
    ASSERT_TRUE(Load().ok());  // its counters are there from the first time
    runs[room > 0] = script_->batches().size() - runs[0];
    EXPECT_EQ(Stats().hits + Stats().misses, 0U);
  }
  EXPECT_EQ(runs[1], runs[0]);
  EXPECT_GT(runs[0], 10U);
}

// Answers of a cached engine are those of one that computes all, whatever is dropped meanwhile.
TEST_F(AnswerCacheTest, ManyCallersAndTenantsGetTheirOwnAnswers) {
  options_.answer_cache = 30'000;
  StartWithModel(16);
  std::atomic<int> wrong = 0;
  std::atomic<int> hits = 0;
  const auto call = [&](int caller) {
    std::mt19937 random(TestSeed() + static_cast<uint32_t>(caller));
    for (int i = 0; i < Rounds(4000); ++i) {
      std::vector<int64_t> ids(1 + random() % 3);
      for (int64_t& id : ids) id = random() % 4;
      const std::string text(ids.size(), static_cast<char>('a' + random() % 3));
      const bool by_text = random() % 4 == 0;
      EncodeRequest request = by_text ? TextRequest({text}) : Ids(ids);
      request.call.tenant = std::string(random() % 3, 't');
      request.dimensions = random() % 2 == 0 ? 0 : 2;
      const auto width = static_cast<size_t>(request.dimensions == 0 ? 16 : 2);
      int64_t sum = 0;
      for (size_t t = 0; t < ids.size(); ++t) sum += by_text ? text[t] : ids[t];
      const auto result = Run(std::move(request));
      if (!result.ok()) {
        ++wrong;
        continue;
      }
      hits += result->report.batch.cached;
      wrong += result->output.data.size() != width * sizeof(float) ||
               result->output.data.as<float>()[0] != static_cast<float>(sum);
    }
  };
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) callers.emplace_back(call, caller);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(hits, 100);
  EXPECT_LE(Stats().bytes, options_.answer_cache);
  EXPECT_EQ(Stats().hits, static_cast<uint64_t>(hits));
  EXPECT_EQ(Stats().hits + Stats().misses, 4U * static_cast<uint64_t>(Rounds(4000)));
}

}  // namespace
}  // namespace castor
