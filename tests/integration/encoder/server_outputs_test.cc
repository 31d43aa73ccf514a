// Several outputs of one pass, the types of rows, and free prompts: over the socket, against single
// outputs of the same server, and with requests that contradict themselves.

#include <limits>
#include <string>
#include <vector>

#include "tests/integration/golden_models.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

constexpr v1::EncodeOutput kAll[] = {v1::SPARSE, v1::POOLED, v1::TOKEN_EMBEDDINGS};

class ServerOutputsTest : public ServerTest {
 protected:
  void SetUp() override {
    StartReal(GoldenModels({"splade_bert", "bert_sequences", "bge_m3"}, "heads/"));
  }

  static v1::EncodeRequest RequestOf(const std::vector<std::string>& texts) {
    v1::EncodeRequest request = EncodeOf(texts);
    request.set_model("splade_bert");
    return request;
  }

  std::string Refusal(const v1::EncodeRequest& request) { return Outcome(Try(request)); }
};

template <typename Message>
std::string BytesOf(const Message& message) {
  return message.SerializeAsString();
}

// Each of several outputs equals the answer to a request for it alone, byte for byte.
TEST_F(ServerOutputsTest, SeveralOutputsEqualEachAlone) {
  const std::vector<std::string> texts = {"the cat sat", "a dog", "", "the mat on the mat"};
  for (const char* model : {"splade_bert", "bge_m3"}) {
    v1::EncodeRequest request = RequestOf(texts);
    request.set_model(model);
    for (const bool in_spans : {false, true}) {
      if (in_spans) {
        for (const int32_t sequence : {3, 0, 3}) {
          v1::Spans::Range* range = request.mutable_spans()->add_ranges();
          range->set_sequence(sequence);
          range->set_end(7);
        }
      }
      for (const v1::EncodeOutput output : kAll) request.add_outputs(output);
      const v1::EncodeResponse all = Encode(request);
      EXPECT_FALSE(all.has_output() || all.has_sparse());
      EXPECT_EQ(all.lengths_size(), 0);
      ASSERT_EQ(all.outputs_size(), 3);
      request.clear_outputs();
      for (int i = 0; i < 3; ++i) {
        const v1::OutputRows& rows = all.outputs(i);
        EXPECT_EQ(rows.output(), kAll[i]);
        request.set_output(kAll[i]);
        v1::EncodeRequest single = request;
        if (kAll[i] != v1::POOLED) single.clear_spans();
        const v1::EncodeResponse alone = Encode(single);
        EXPECT_EQ(BytesOf(rows.values()), BytesOf(alone.output()));
        EXPECT_EQ(BytesOf(rows.sparse()), BytesOf(alone.sparse()));
        EXPECT_EQ((std::vector<int64_t>(rows.lengths().begin(), rows.lengths().end())),
                  (std::vector<int64_t>(alone.lengths().begin(), alone.lengths().end())));
        EXPECT_EQ(all.token_counts(0), alone.token_counts(0));
      }
      request.clear_output();
    }
  }
  EXPECT_TRUE(AwaitNoBytes());
}

TEST_F(ServerOutputsTest, AClassifierGivesLogitsScoresAndRows) {
  v1::EncodeRequest request = RequestOf({"the cat sat", "a dog"});
  request.set_model("bert_sequences");
  const v1::EncodeOutput outputs[] = {v1::LOGITS, v1::TOKEN_EMBEDDINGS, v1::SCORES, v1::POOLED};
  for (const v1::EncodeOutput output : outputs) request.add_outputs(output);
  const v1::EncodeResponse all = Encode(request);
  EXPECT_GT(all.labels_size(), 0);
  ASSERT_EQ(all.outputs_size(), 4);
  for (int i = 0; i < 4; ++i) {
    request.clear_outputs();
    request.add_outputs(outputs[i]);  // which may stand in the list alone
    EXPECT_EQ(BytesOf(Encode(request).outputs(0)), BytesOf(all.outputs(i))) << i;
  }
}

TEST_F(ServerOutputsTest, RowsComeInTheTypeThatIsAskedFor) {
  v1::EncodeRequest request = RequestOf({"the cat sat", "a dog", "the mat"});
  request.set_output(v1::POOLED);
  const v1::EncodeResponse floats = Encode(request);
  const int64_t width = floats.output().shape(1);
  const std::vector<float> rows = FloatsOf(floats.output());

  request.set_output_type(v1::EncodeRequest::FLOAT32);
  EXPECT_EQ(BytesOf(Encode(request).output()), BytesOf(floats.output()));
  request.set_output_type(v1::EncodeRequest::UBINARY);
  const v1::Tensor bits = Encode(request).output();
  EXPECT_EQ(bits.dtype(), v1::UINT8);
  EXPECT_EQ(bits.shape(1), (width + 7) / 8);
  for (int64_t d = 0; d < width; ++d) {
    EXPECT_EQ((bits.raw()[d / 8] >> (7 - d % 8)) & 1, rows[d] > 0 ? 1 : 0) << d;
  }
  request.set_output_type(v1::EncodeRequest::BFLOAT16);
  EXPECT_EQ(Encode(request).output().raw().size(), rows.size() * 2);

  request.set_output_type(v1::EncodeRequest::UINT8);
  const v1::Tensor own = Encode(request).output();
  for (int64_t d = 0; d < width; ++d) {
    uint8_t least = 255, greatest = 0;
    for (int64_t r = 0; r < 3; ++r) {
      const auto value = static_cast<uint8_t>(own.raw()[r * width + d]);
      least = std::min(least, value);
      greatest = std::max(greatest, value);
    }
    EXPECT_EQ(least, 0);
    EXPECT_GE(greatest, 254);  // 255 steps may not quite reach the end
  }

  // With ranges of the request's a row does not depend on its company.
  std::vector<float> bounds(2 * width, -1);
  std::fill(bounds.begin() + width, bounds.end(), 1.0F);
  v1::Tensor& ranges = *request.mutable_ranges();
  ranges.set_dtype(v1::FLOAT32);
  ranges.add_shape(2);
  ranges.add_shape(width);
  ranges.set_raw(bounds.data(), bounds.size() * sizeof(float));
  const std::string three = Encode(request).output().raw();
  request.mutable_texts()->mutable_texts()->DeleteSubrange(1, 2);
  EXPECT_EQ(Encode(request).output().raw(), three.substr(0, width));
}

TEST_F(ServerOutputsTest, AFreePromptStandsBeforeEveryText) {
  v1::EncodeRequest request = RequestOf({"cat sat", "mat"});
  request.set_output(v1::TOKEN_EMBEDDINGS);
  request.set_prompt("the ");
  const v1::EncodeResponse prompted = Encode(request);
  EXPECT_EQ(prompted.prompt_name(), "");
  v1::EncodeRequest whole = RequestOf({"the cat sat", "the mat"});
  whole.set_output(v1::TOKEN_EMBEDDINGS);
  EXPECT_EQ(BytesOf(prompted.output()), BytesOf(Encode(whole).output()));
}

TEST_F(ServerOutputsTest, ContradictionsAreRefusedByField) {
  const auto refusal = [&](auto&& change) {
    v1::EncodeRequest request = RequestOf({"the cat sat", "a dog"});
    change(request);
    const std::string outcome = Refusal(request);
    return outcome.substr(outcome.rfind(' ') + 1);
  };
  using Request = v1::EncodeRequest;
  const auto number = [](int value) { return static_cast<v1::EncodeOutput>(value); };
  EXPECT_EQ(refusal([](Request& r) {
              r.set_output(v1::POOLED);
              r.add_outputs(v1::SPARSE);
            }),
            "output");
  EXPECT_EQ(refusal([](Request& r) {
              r.add_outputs(v1::POOLED);
              r.add_outputs(v1::POOLED);
            }),
            "outputs[1]");
  EXPECT_EQ(refusal([](Request& r) { r.add_outputs(v1::ENCODE_OUTPUT_DEFAULT); }), "outputs[0]");
  EXPECT_EQ(refusal([&](Request& r) { r.add_outputs(number(77)); }), "outputs[0]");
  EXPECT_EQ(refusal([](Request& r) { r.add_outputs(v1::LOGITS); }), "outputs[0]");
  EXPECT_EQ(refusal([](Request& r) {
              for (int i = 0; i < 100'000; ++i) r.add_outputs(v1::POOLED);
            }),
            "outputs");
  EXPECT_EQ(refusal([](Request& r) {
              r.add_outputs(v1::SPARSE);
              r.add_outputs(v1::TOKEN_EMBEDDINGS);
              r.set_pooling(v1::CLS);
            }),
            "pooling");
  EXPECT_EQ(refusal([](Request& r) {
              r.add_outputs(v1::SPARSE);
              r.mutable_spans()->add_ranges()->set_end(1);
            }),
            "spans");
  EXPECT_EQ(refusal([](Request& r) { r.set_output_type(v1::EncodeRequest::INT8); }), "output_type");
  EXPECT_EQ(refusal([](Request& r) {
              r.set_output_type(static_cast<v1::EncodeRequest::OutputType>(-9));
            }),
            "output_type");
  EXPECT_EQ(refusal([](Request& r) {
              r.set_prompt("a ");
              r.set_prompt_name("query");
            }),
            "prompt_name");
  EXPECT_EQ(refusal([](Request& r) {
              r.set_prompt("a ");
              r.mutable_tokens()->add_ids(1);
            }),
            "prompt");
  EXPECT_EQ(refusal([](Request& r) { r.set_prompt(std::string(2 << 20, 'x')); }), "prompt");
  EXPECT_EQ(refusal([](Request& r) {
              for (int i = 2; i < 4096; ++i) r.mutable_texts()->add_texts("a");
              r.set_prompt(std::string(17 << 10, 'x'));
            }),
            "prompt");
  EXPECT_EQ(refusal([](Request& r) {
              r.set_output(v1::POOLED);
              r.set_output_type(v1::EncodeRequest::INT8);
              r.mutable_texts()->mutable_texts()->RemoveLast();
            }),
            "ranges");
}

TEST_F(ServerOutputsTest, RangesMustBeRanges) {
  v1::EncodeRequest request = RequestOf({"the cat sat", "a dog"});
  request.set_output(v1::POOLED);
  const int64_t width = Encode(request).output().shape(1);
  const auto refusal = [&](std::vector<float> bounds, std::vector<int64_t> shape) {
    v1::Tensor& ranges = *request.mutable_ranges();
    ranges.set_dtype(v1::FLOAT32);
    ranges.mutable_shape()->Assign(shape.begin(), shape.end());
    ranges.set_raw(bounds.data(), bounds.size() * sizeof(float));
    return Refusal(request);
  };
  const auto all = static_cast<size_t>(2 * width);
  EXPECT_EQ(refusal(std::vector<float>(all, 1), {2, width}),
            "INVALID_ARGUMENT INVALID_FIELD ranges");  // of FLOAT32 rows
  request.set_output_type(v1::EncodeRequest::UINT8);
  std::vector<float> bounds(all, 1);
  bounds[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal(bounds, {2, width}), "INVALID_ARGUMENT NON_FINITE_INPUT ranges");
  bounds[3] = 2;
  EXPECT_EQ(refusal(bounds, {2, width}), "INVALID_ARGUMENT INVALID_FIELD ranges");
  bounds.assign(all, 3e38F);
  bounds[0] = -3e38F;
  EXPECT_EQ(refusal(bounds, {2, width}), "INVALID_ARGUMENT INVALID_FIELD ranges");
  const std::string shape = "INVALID_ARGUMENT INVALID_FIELD ranges.shape";
  EXPECT_EQ(refusal(bounds, {width, 2}), shape);
  EXPECT_EQ(refusal(bounds, {int64_t{1} << 40, int64_t{1} << 40}), shape);
  EXPECT_EQ(refusal({}, {}), shape);
  EXPECT_EQ(refusal({1}, {2, width}), "INVALID_ARGUMENT INVALID_FIELD ranges.raw");
  request.mutable_ranges()->set_dtype(v1::INT8);
  EXPECT_EQ(Refusal(request), "INVALID_ARGUMENT INVALID_FIELD ranges.dtype");
}

// The most texts, with all outputs, one after another and side by side: the budget is whole again.
TEST_F(ServerOutputsTest, ManyTextsWithAllOutputsLeaveNothingBehind) {
  v1::EncodeRequest request = RequestOf(std::vector<std::string>(4096, "the cat sat on the mat"));
  for (const v1::EncodeOutput output : kAll) request.add_outputs(output);
  request.set_output_type(v1::EncodeRequest::INT8);
  const v1::EncodeResponse all = Encode(request);
  ASSERT_EQ(all.outputs_size(), 3);
  EXPECT_EQ(all.outputs(0).sparse().lengths_size(), 4096);
  EXPECT_EQ(all.outputs(1).values().dtype(), v1::INT8);
  EXPECT_TRUE(AwaitNoBytes());
}

TEST_F(ServerOutputsTest, RowsOfNaNHaveNoPlaceInARange) {
  v1::EncodeRequest request;
  request.set_model("bert_sequences");
  request.set_output(v1::POOLED);
  const int64_t width = 16;
  std::vector<float> values(3 * width, std::numeric_limits<float>::quiet_NaN());
  v1::Tensor& tensor = *request.mutable_embeddings()->mutable_values();
  tensor.set_dtype(v1::FLOAT32);
  tensor.add_shape(3);
  tensor.add_shape(width);
  tensor.set_raw(values.data(), values.size() * sizeof(float));
  for (const int64_t length : {1, 2}) request.mutable_embeddings()->add_lengths(length);
  request.set_check_finite(false);
  request.set_output_type(v1::EncodeRequest::INT8);
  EXPECT_EQ(Refusal(request), "INVALID_ARGUMENT NON_FINITE_INPUT embeddings.values");
  request.set_output_type(v1::EncodeRequest::UBINARY);
  EXPECT_EQ(Encode(request).output().raw(), std::string(2 * width / 8, '\0'));
  tensor.set_dtype(v1::UINT8);
  EXPECT_EQ(Refusal(request), "INVALID_ARGUMENT INVALID_FIELD embeddings.values.dtype");
}

}  // namespace
}  // namespace castor::testing
