// Encode requests through the engine, with fakes for the model and its tokenizer: tokenizing on its
// own threads, cancellation and expiry meanwhile, and budgets that are corrected afterwards.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/loop/engine_fixture.h"

namespace castor {
namespace {

class EngineEncodeTest : public EngineFixture {
 protected:
  // The tokenizer may still be running, and uses members of this object.
  ~EngineEncodeTest() override {
    script_->Open();
    tokenizer_gate_.Open();
    engine_.reset();
  }

  // Makes the tokenizer wait before it looks at a text that starts with '#'.
  void GateTokenizer() {
    options_.cpu_threads = 1;
    script_->make_model = [this](const ModelSource& source) {
      return std::make_shared<GatedModel>(source.name, *this);
    };
    tokenizer_gate_.Close();
  }

  void StartWithModel() {
    options_.models.push_back({"fake-model", "present"});
    Start();
  }

  Ticket Encode(EncodeRequest request, int id) {
    auto ticket = engine_->Submit(std::move(request), encodings_.Slot(id));
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.value_or(0);
  }

  class GatedModel : public FakeModel {
   public:
    GatedModel(std::string name, EngineEncodeTest& test)
        : FakeModel(std::move(name)), test_(test) {}

    absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const encoder::Slice& slice,
                                     encoder::Prepared* prepared) const override {
      if (const auto* texts = std::get_if<TextInput>(&request.input)) {
        const std::string_view next = texts->texts[prepared->sequences()];
        test_.slices_ += next.substr(0, 2);
        if (next.starts_with('#')) (void)test_.tokenizer_gate_.Begin({});
        if (slice.stop()) test_.slices_ += '!';
      }
      return FakeModel::PrepareSome(request, slice, prepared);
    }

   private:
    EngineEncodeTest& test_;
  };

  FakeScript tokenizer_gate_;
  std::string slices_;  // the start of each slice's first text, and '!' after one told to stop
};

TEST_F(EngineEncodeTest, TokenizesBatchesAndPools) {
  StartWithModel();
  // Destroyed when Submit returns, and too long for a string's inline buffer.
  std::string text = "ab" + std::string(100, 'c');
  std::string other = "d";
  Encode(TextRequest({text, other}), 1);
  text.assign(text.size(), '?');
  other.assign(other.size(), '?');
  const auto& result = encodings_.Get(1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->model, "fake-model");
  EXPECT_EQ(result->output.shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(result->output.data.as<float>()[0], 'a' + 'b' + 100 * 'c');
  EXPECT_EQ(result->output.data.as<float>()[1], 'd');
  EXPECT_EQ(result->token_counts, (std::vector<int64_t>{102, 1}));
  EXPECT_EQ(result->lengths, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(result->report.batch.tokens, 103);
  EXPECT_EQ(engine_->stats().tokenize_seconds.count(), 1u);
}

TEST_F(EngineEncodeTest, TakesTokensWithoutTheTokenizer) {
  StartWithModel();
  EncodeRequest request;
  request.model = "fake-model";
  request.input = TokenInput{{3, 4, 5}, {}, {}};
  Encode(std::move(request), 1);
  ASSERT_TRUE(encodings_.Get(1).ok());
  EXPECT_EQ(encodings_.Get(1)->output.data.as<float>()[0], 12);
  EXPECT_EQ(engine_->stats().tokenize_seconds.count(), 0u);
}

TEST_F(EngineEncodeTest, TextsAndTokensShareBatches) {
  StartWithModel();
  Occupy();
  EncodeRequest tokens;
  tokens.input = TokenInput{{1000}, {}, {}};
  Encode(TextRequest({"a"}), 1);
  while (engine_->stats().load.queued_requests < 1) std::this_thread::yield();  // tokenized
  Encode(std::move(tokens), 2);
  script_->Open();
  ASSERT_TRUE(encodings_.Get(1).ok());
  ASSERT_TRUE(encodings_.Get(2).ok());
  EXPECT_EQ(script_->batches(), (std::vector<Marks>{{-1}, {'a', 1000}}));
}

TEST_F(EngineEncodeTest, CorrectsTheEstimateOnceTokenized) {
  options_.max_queued_tokens = 1500;
  StartWithModel();
  Occupy();
  Encode(TextRequest({"abc"}), 1);  // estimated at 1000 tokens
  while (engine_->stats().load.queued_requests < 1) std::this_thread::yield();
  EXPECT_EQ(engine_->stats().load.inflight_tokens, 1 + 3);
  Encode(TextRequest({"de"}), 2);  // fits now
  script_->Open();
  EXPECT_TRUE(encodings_.Get(1).ok());
  EXPECT_TRUE(encodings_.Get(2).ok());
}

TEST_F(EngineEncodeTest, TextsThatAreReturnedCountUntilTheAnswerIsGone) {
  StartWithModel();
  Occupy();
  const std::string first = "ab", second(5000, 'c');
  int64_t held = engine_->stats().load.inflight_bytes;
  const auto submit = [&](bool return_texts, int id) {
    EncodeRequest request = TextRequest({first, second});
    request.return_texts = return_texts;
    Encode(std::move(request), id);
    while (engine_->stats().load.queued_requests < id) std::this_thread::yield();  // tokenized
    const int64_t before = std::exchange(held, engine_->stats().load.inflight_bytes);
    return held - before;
  };
  const int64_t without = submit(false, 1);
  EXPECT_EQ(submit(true, 2), without + 5002);
  script_->Open();
  ASSERT_TRUE(encodings_.Get(1).ok());
  ASSERT_TRUE(encodings_.Get(2).ok());
  EXPECT_TRUE(encodings_.Get(1)->texts.empty());
  EXPECT_EQ(encodings_.Get(2)->texts, (std::vector<std::string_view>{first, second}));
  EXPECT_GE(engine_->stats().load.inflight_bytes, 5002);
}

TEST_F(EngineEncodeTest, ABadTextFailsAlone) {
  StartWithModel();
  Encode(TextRequest({"bad"}), 1);
  Encode(TextRequest({"good"}), 2);
  EXPECT_EQ(ReasonOf(encodings_.Get(1).status()), Reason::kInvalidField);
  EXPECT_EQ(FieldOf(encodings_.Get(1).status()), "texts.texts[0]");
  EXPECT_TRUE(encodings_.Get(2).ok());
}

TEST_F(EngineEncodeTest, CancelsAndExpiresWhileTheTokenizerWorks) {
  GateTokenizer();
  StartWithModel();
  const Ticket working = Encode(TextRequest({"#1"}), 1);
  tokenizer_gate_.WaitForBatches(1);
  const Ticket waiting = Encode(TextRequest({"#2"}), 2);
  EncodeRequest late = TextRequest({"#3"});
  late.call.deadline = clock_->Now() + std::chrono::seconds(1);
  Encode(std::move(late), 3);
  engine_->Cancel(working);
  engine_->Cancel(waiting);
  clock_->Advance(std::chrono::seconds(1));
  EXPECT_EQ(ReasonOf(encodings_.Get(1).status()), Reason::kCancelled);
  EXPECT_EQ(ReasonOf(encodings_.Get(2).status()), Reason::kCancelled);
  EXPECT_EQ(ReasonOf(encodings_.Get(3).status()), Reason::kDeadlineExceeded);
  tokenizer_gate_.Open();
  Encode(TextRequest({"#4"}), 4);
  ASSERT_TRUE(encodings_.Get(4).ok());
  EXPECT_EQ(tokenizer_gate_.batches().size(), 2u);  // the second and third were never tokenized
  EXPECT_EQ(encodings_.size(), 4u);
  EXPECT_EQ(engine_->stats().cancelled_queued, 3u);
}

TEST_F(EngineEncodeTest, ShortTextsNeedNotWaitForAllOfALongRequest) {
  GateTokenizer();
  StartWithModel();
  const std::string bulk(5000, '.');
  const std::string first = "#1" + bulk, second = "b1" + bulk, third = "c1" + bulk;
  const std::string other = "#2" + bulk;
  Encode(TextRequest({first, second, third}), 1);
  tokenizer_gate_.WaitForBatches(1);
  Encode(TextRequest({other}), 2);
  Encode(TextRequest({"x3"}), 3);
  Encode(TextRequest({"y4", "z4"}), 4);
  tokenizer_gate_.Open();
  for (int id = 1; id <= 4; ++id) EXPECT_TRUE(encodings_.Get(id).ok());
  EXPECT_EQ(slices_, "#1#2x3y4b1c1");
  EXPECT_EQ(encodings_.Get(1)->token_counts, (std::vector<int64_t>{5002, 5002, 5002}));
  EXPECT_EQ(engine_->stats().tokenize_seconds.count(), 4u);
}

TEST_F(EngineEncodeTest, VeryLongTextsDoNotTakeEveryThread) {
  GateTokenizer();
  options_.cpu_threads = 2;
  StartWithModel();
  const std::string book = "#1" + std::string(100000, '.');
  Encode(TextRequest({book}), 1);
  tokenizer_gate_.WaitForBatches(1);
  Encode(TextRequest({book, book}), 2);
  Encode(TextRequest({"x3"}), 3);  // for the other thread, which did not take the second book
  EXPECT_TRUE(encodings_.Get(3).ok());
  EXPECT_EQ(tokenizer_gate_.batches().size(), 1u);
  tokenizer_gate_.Open();
  EXPECT_TRUE(encodings_.Get(1).ok());
  EXPECT_TRUE(encodings_.Get(2).ok());
}

TEST_F(EngineEncodeTest, NoMoreIsTokenizedOfACancelledRequest) {
  GateTokenizer();
  StartWithModel();
  const std::string bulk(5000, '.');
  const std::string first = "#1" + bulk, second = "b1" + bulk;
  const Ticket cancelled = Encode(TextRequest({first, second}), 1);
  tokenizer_gate_.WaitForBatches(1);
  EncodeRequest late = TextRequest({second, second});
  late.call.deadline = clock_->Now() + std::chrono::seconds(1);
  Encode(std::move(late), 2);
  engine_->Cancel(cancelled);
  clock_->Advance(std::chrono::seconds(1));
  EXPECT_EQ(ReasonOf(encodings_.Get(1).status()), Reason::kCancelled);
  EXPECT_EQ(ReasonOf(encodings_.Get(2).status()), Reason::kDeadlineExceeded);
  tokenizer_gate_.Open();
  Encode(TextRequest({"x3"}), 3);
  ASSERT_TRUE(encodings_.Get(3).ok());
  EXPECT_EQ(slices_, "#1!x3");
}

TEST_F(EngineEncodeTest, DrainAnswersWhatIsBeingTokenized) {
  GateTokenizer();
  StartWithModel();
  Encode(TextRequest({"#1"}), 1);
  tokenizer_gate_.WaitForBatches(1);
  EXPECT_FALSE(engine_->Drain(clock_->Now()));
  EXPECT_EQ(ReasonOf(encodings_.Get(1).status()), Reason::kDraining);
  tokenizer_gate_.Open();
}

TEST_F(EngineEncodeTest, NamesWhatItDoesNotHave) {
  StartWithModel();
  EncodeRequest request = TextRequest({"a"});
  request.model = "other";
  auto refused = engine_->Submit(std::move(request), encodings_.Slot(1));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kModelNotFound);
  request = TextRequest({"a"});
  request.kernel = Clustered{};
  refused = engine_->Submit(std::move(request), encodings_.Slot(1));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kKernelNotAvailable);
  request = TextRequest({"a"});
  request.kernel = Automatic{};
  Encode(std::move(request), 2);
  EXPECT_TRUE(encodings_.Get(2).ok());
}

TEST_F(EngineEncodeTest, WithoutModelsEveryEncodeIsNotFound) {
  Start();
  auto refused = engine_->Submit(TextRequest({"a"}), encodings_.Slot(1));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kModelNotFound);
}

// Until a text is tokenized its need is an estimate: here it has one token a byte, not one in four.
TEST_F(EngineEncodeTest, ATextThatNeedsMoreMemoryThanExpectedIsTooLarge) {
  class HungryModel : public FakeModel {
   public:
    using FakeModel::FakeModel;
    encoder::Activations activations() const override {
      return {.body = {.rows = {.token = int64_t{1} << 20}}};
    }
  };
  script_->make_model = [](const ModelSource& source) {
    return std::make_shared<HungryModel>(source.name);
  };
  options_.max_device_bytes = int64_t{100} << 20;
  StartWithModel();
  const std::string fits(80, 'a'), too_long(160, 'a');
  Encode(TextRequest({fits}), 1);
  EXPECT_TRUE(encodings_.Get(1).ok());
  Encode(TextRequest({too_long}), 2);
  const absl::Status refused = encodings_.Get(2).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kTooLarge);
  EXPECT_NE(refused.message().find("--max-device-bytes"), std::string::npos);
  EXPECT_EQ(engine_->stats().load.inflight_requests, 0);
}

}  // namespace
}  // namespace castor
