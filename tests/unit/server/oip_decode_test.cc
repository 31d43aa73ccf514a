// ModelInferRequest on its way to the engine's requests: rows and masks of ids, what is copied, and
// how much may be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "inference/grpc_service.pb.h"
#include "server/oip/decode.h"
#include "tests/support/fake_engine.h"
#include "tests/support/shared_object.h"

namespace castor::server::oip {
namespace {

using inference::ModelInferRequest;
using ::testing::ElementsAre;

constexpr int64_t kMaxSequences = 4, kMaxTokens = 24;

class OipDecodeTest : public ::testing::Test {
 protected:
  static EngineOptions Options() {
    EngineOptions options;
    options.max_sequences = kMaxSequences;
    options.max_queued_tokens = kMaxTokens;
    options.max_text_bytes = kMaxTokens;
    return options;
  }
  OipDecodeTest() { SetModels("embed", "rank"); }

  void SetModels(const char* embedder, const char* reranker) {
    ModelInfos models(2);
    models[0].name = embedder;
    models[0].outputs = {EncodeOutput::kPooled};
    models[1].name = reranker;
    models[1].outputs = {EncodeOutput::kLogits};
    models[1].labels = {"relevant"};
    engine_.SetModels(models);
  }

  // Of INT64 contents.
  static void AddIntegers(const std::string& name, const std::vector<int64_t>& shape,
                          const std::vector<int64_t>& values, ModelInferRequest* request) {
    auto* const input = request->add_inputs();
    input->set_name(name);
    input->set_datatype("INT64");
    input->mutable_shape()->Assign(shape.begin(), shape.end());
    input->mutable_contents()->mutable_int64_contents()->Assign(values.begin(), values.end());
  }
  static void AddTexts(const std::string& name, const std::vector<std::string>& texts,
                       ModelInferRequest* request) {
    auto* const input = request->add_inputs();
    input->set_name(name);
    input->set_datatype("BYTES");
    input->add_shape(std::ssize(texts));
    std::string* const bytes = request->add_raw_input_contents();
    for (const std::string& text : texts) {
      const auto size = static_cast<uint32_t>(text.size());
      bytes->append(reinterpret_cast<const char*>(&size), sizeof(size)).append(text);
    }
  }

  // Slices of `slice` bytes each; 0: one.
  absl::Status Decode(const ModelInferRequest& from, size_t slice = 0) {
    decoded_ = DecodedEncode();
    const std::string bytes = from.SerializeAsString();
    std::vector<grpc::Slice> slices;
    for (size_t at = 0; at < bytes.size(); at += slice == 0 ? bytes.size() : slice) {
      slices.emplace_back(bytes.substr(at, slice == 0 ? bytes.size() : slice));
    }
    decoded_.slices = SliceView(grpc::ByteBuffer(slices.data(), slices.size()), budget_);
    message_ = wire::ModelInferRequest();
    absl::Status status = server::wire::Parse(&decoded_.slices, &message_);
    if (!status.ok()) return status;
    const auto model = catalogue_.Find(message_.model_name, message_.model_version);
    if (!model.ok()) return model.status();
    requested_ = RequestedOutputs();
    requested_.model = *model;
    decoded_.regions = RequestRegions({regions_, "tenant"});
    return DecodeEncode(message_, &decoded_, &requested_);
  }
  std::string Refusal(const ModelInferRequest& from) {
    const absl::Status status = Decode(from);
    if (status.ok()) return "none";
    return std::string(NameOf(ReasonOf(status))) + " " + FieldOf(status).value_or("");
  }
  const TokenInput& tokens() const { return std::get<TokenInput>(decoded_.request.input); }
  const TextInput& texts() const { return std::get<TextInput>(decoded_.request.input); }

  FakeEngine engine_;
  const Catalogue catalogue_{engine_};
  SharedMemory regions_{4};
  DecodeBudget budget_{Options(), 1 << 20};
  wire::ModelInferRequest message_;
  RequestedOutputs requested_;
  DecodedEncode decoded_;
};

ModelInferRequest RequestTo(const std::string& model) {
  ModelInferRequest request;
  request.set_model_name(model);
  return request;
}

TEST_F(OipDecodeTest, IdsOfTwoDimensionsAreRows) {
  ModelInferRequest request = RequestTo("embed");
  AddIntegers("input_ids", {2, 3}, {1, 2, 3, 4, 5, 6}, &request);
  ASSERT_TRUE(Decode(request).ok());
  EXPECT_THAT(tokens().ids, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(tokens().lengths, ElementsAre(3, 3));
  ModelInferRequest one = RequestTo("embed");
  AddIntegers("input_ids", {3}, {1, 2, 3}, &one);
  ASSERT_TRUE(Decode(one).ok());
  EXPECT_THAT(tokens().lengths, ElementsAre(3));
  AddIntegers("lengths", {2}, {1, 2}, &one);
  ASSERT_TRUE(Decode(one).ok());
  EXPECT_THAT(tokens().lengths, ElementsAre(1, 2));
  AddIntegers("lengths", {2}, {1, 5}, &request);
  EXPECT_EQ(Refusal(request), "INVALID_FIELD input_ids") << "lengths are of one dimension";
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {1, 2, 3}, {-1, -6}, {6, 1}, {int64_t{1} << 40, 0}}) {
    ModelInferRequest odd = RequestTo("embed");
    AddIntegers("input_ids", shape, {1, 2, 3, 4, 5, 6}, &odd);
    EXPECT_THAT(Refusal(odd), ::testing::EndsWith(" input_ids"));
  }
}

TEST_F(OipDecodeTest, AMaskTakesThePaddingOutOfRows) {
  ModelInferRequest request = RequestTo("embed");
  AddIntegers("input_ids", {2, 3}, {1, 2, 0, 4, 0, 0}, &request);
  AddIntegers("attention_mask", {2, 3}, {1, 1, 0, 1, 0, 0}, &request);
  ASSERT_TRUE(Decode(request).ok());
  EXPECT_THAT(tokens().ids, ElementsAre(1, 2, 4));
  EXPECT_THAT(tokens().lengths, ElementsAre(2, 1));
  for (const auto& [mask, named] : std::vector<std::pair<std::vector<int64_t>, std::string>>{
           {{0, 1, 1, 1, 1, 1}, "attention_mask[1]"},     // padded on the left
           {{1, 1, 1, 1, 0, 1}, "attention_mask[5]"},     // a hole
           {{1, 1, 2, 1, 1, 1}, "attention_mask[2]"},     // a weight
           {{1, 1, 1, 0, 0, 0}, "attention_mask[3]"}}) {  // nothing
    auto* const contents = request.mutable_inputs(1)->mutable_contents();
    contents->mutable_int64_contents()->Assign(mask.begin(), mask.end());
    EXPECT_EQ(Refusal(request), "INVALID_FIELD " + named);
  }
  request.mutable_inputs(1)->set_shape(0, 3);
  request.mutable_inputs(1)->set_shape(1, 2);
  EXPECT_EQ(Refusal(request), "INVALID_FIELD attention_mask");
  ModelInferRequest ragged = RequestTo("embed");
  AddIntegers("input_ids", {3}, {1, 2, 3}, &ragged);
  AddIntegers("attention_mask", {3}, {1, 1, 0}, &ragged);
  ASSERT_TRUE(Decode(ragged).ok()) << "one row";
  EXPECT_THAT(tokens().lengths, ElementsAre(2));
  AddIntegers("lengths", {1}, {3}, &ragged);
  EXPECT_EQ(Refusal(ragged), "INVALID_FIELD attention_mask");
}

TEST_F(OipDecodeTest, CountsAreCheckedBeforeElementsAreRead) {
  ModelInferRequest ids = RequestTo("embed");
  AddIntegers("input_ids", {kMaxTokens + 1}, {1}, &ids);
  EXPECT_EQ(Refusal(ids), "INVALID_FIELD input_ids");
  ModelInferRequest lengths = RequestTo("embed");
  AddIntegers("input_ids", {5}, {1, 1, 1, 1, 1}, &lengths);
  AddIntegers("lengths", {5}, {1, 1, 1, 1, 1}, &lengths);
  EXPECT_EQ(Refusal(lengths), "INVALID_FIELD lengths");
  ModelInferRequest texts = RequestTo("embed");
  AddTexts("text", {"a", "b", "c", "d", "e"}, &texts);
  EXPECT_EQ(Refusal(texts), "INVALID_FIELD text");
}

TEST_F(OipDecodeTest, TextsStayInTheirSlices) {
  ModelInferRequest request = RequestTo("rank");
  const std::string longest(3000, 'q');
  AddTexts("query", {longest}, &request);
  AddTexts("passage", {"one", "", "three"}, &request);
  ASSERT_TRUE(Decode(request).ok());
  EXPECT_THAT(texts().texts, ElementsAre(longest, longest, longest));
  const grpc::Slice& all = decoded_.slices.slices().front();
  for (const auto* const list : {&texts().texts, &texts().pairs}) {
    for (const std::string_view text : *list) {
      if (text.empty()) continue;
      EXPECT_GE(reinterpret_cast<const uint8_t*>(text.data()), all.begin());
      EXPECT_LT(reinterpret_cast<const uint8_t*>(text.data()), all.end());
    }
  }
  // However the message is cut, it says the same.
  for (size_t slice = 1; slice < 40; ++slice) {
    ASSERT_TRUE(Decode(request, slice).ok());
    EXPECT_THAT(texts().texts, ElementsAre(longest, longest, longest)) << slice;
    EXPECT_THAT(texts().pairs, ElementsAre("one", "", "three")) << slice;
  }
}

TEST_F(OipDecodeTest, WhatMustBeCopiedIsTakenFromTheBudget) {
  castor::SharedObject object(1 << 20);
  ASSERT_TRUE(regions_.Add("tenant", *SharedRegion::Open({"r", object.key(), 0, 1 << 20})).ok());
  ModelInferRequest request = RequestTo("embed");
  AddTexts("text", {"a"}, &request);
  request.clear_raw_input_contents();
  auto& parameters = *request.mutable_inputs(0)->mutable_parameters();
  parameters["shared_memory_region"].set_string_param("r");
  parameters["shared_memory_byte_size"].set_int64_param(1 << 20);
  EXPECT_EQ(Refusal(request), "INVALID_FIELD text") << "more than one text can have";
  parameters["shared_memory_byte_size"].set_int64_param(5);
  object.Write(0, std::string("\1\0\0\0a", 5));
  ASSERT_TRUE(Decode(request).ok());
  EXPECT_THAT(texts().texts, ElementsAre("a"));

  EngineOptions options = Options();
  options.max_text_bytes = 1 << 20;
  DecodeBudget small(options, 1 << 18);
  parameters["shared_memory_byte_size"].set_int64_param(1 << 20);
  const grpc::Slice slice(request.SerializeAsString());
  decoded_.slices = SliceView(grpc::ByteBuffer(&slice, 1), small);
  message_ = wire::ModelInferRequest();
  ASSERT_TRUE(server::wire::Parse(&decoded_.slices, &message_).ok());
  EXPECT_EQ(ReasonOf(DecodeEncode(message_, &decoded_, &requested_)), Reason::kQueueFull);
  EXPECT_TRUE(small.TakeBytes(1 << 18));
  decoded_.slices = SliceView();  // it refers to the budget
}

TEST_F(OipDecodeTest, ErrorsNameWhatTheCallerSent) {
  ModelInferRequest nothing = RequestTo("rank");
  EXPECT_EQ(Refusal(nothing), "INVALID_FIELD query");
  ModelInferRequest documents = RequestTo("rank");
  AddTexts("passages", {"a"}, &documents);
  EXPECT_EQ(Refusal(documents), "INVALID_FIELD query");
  ModelInferRequest strange = RequestTo("embed");
  AddTexts("passages", {"a"}, &strange);
  EXPECT_EQ(Refusal(strange), "INVALID_FIELD passages");
  ModelInferRequest alone = RequestTo("embed");
  AddIntegers("lengths", {1}, {1}, &alone);
  EXPECT_EQ(Refusal(alone), "INVALID_FIELD lengths");

  ModelInferRequest pairs = RequestTo("rank");
  AddTexts("query", {"a"}, &pairs);
  AddTexts("passages", {"b"}, &pairs);
  ASSERT_TRUE(Decode(pairs).ok());
  const absl::Status error = InvalidField("texts.pairs[2]", "is bad");
  EXPECT_EQ(FieldOf(RenameFields(error, true, requested_)), "passages[2]");

  // An input without elements, and one whose elements are where another datatype's belong.
  ModelInferRequest empty = RequestTo("embed");
  AddIntegers("input_ids", {1, 2}, {1, 2}, &empty);
  empty.mutable_inputs(0)->clear_contents();
  absl::Status status = Decode(empty);
  EXPECT_EQ(FieldOf(status), "input_ids");
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("raw_input_contents"));
  empty.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  status = Decode(empty);
  EXPECT_EQ(FieldOf(status), "input_ids");
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("int64_contents"));
}

TEST_F(OipDecodeTest, OthersParametersMeanNothingAndOursAreChecked) {
  ModelInferRequest request = RequestTo("embed");
  AddTexts("text", {"a"}, &request);
  auto& parameters = *request.mutable_parameters();
  parameters["content_type"].set_string_param("json");
  parameters["headers"].set_string_param("{}");
  parameters["softmax_scale"].set_string_param("attention's");
  parameters["sequence_id"].set_uint64_param(3);
  parameters["texts"].set_bool_param(true);
  parameters["triton_enable_empty_final_response"].set_bool_param(true);
  EXPECT_EQ(Refusal(request), "none");
  for (const char* ours : {"dimensions", "timeout", "attention", "truncate", "input_type",
                           "embedding_type", "triton_strange", "topk"}) {
    ModelInferRequest bad = request;
    (*bad.mutable_parameters())[ours].set_string_param("?");
    EXPECT_EQ(Refusal(bad), std::string("INVALID_FIELD parameters.") + ours);
  }
}

TEST_F(OipDecodeTest, VersionsAreNumbersAndAliasesUnique) {
  EXPECT_TRUE(catalogue_.Find("embed", "").ok());
  EXPECT_TRUE(catalogue_.Find("embed", "1").ok());
  for (const char* version : {"2", "0", "9223372036854775807"}) {
    EXPECT_EQ(ReasonOf(catalogue_.Find("embed", version).status()), Reason::kModelNotFound);
  }
  for (const char* version : {"-1", "latest", "1.0", " 1", "9223372036854775808"}) {
    EXPECT_EQ(FieldOf(catalogue_.Find("embed", version).status()), "model_version") << version;
  }
  SetModels("my-model", "My.Model");
  EXPECT_EQ((*catalogue_.Find("my-model", ""))->name, "my-model");
  EXPECT_EQ(ReasonOf(catalogue_.Find("my_model", "").status()), Reason::kModelNotFound);
}

TEST_F(OipDecodeTest, AModelThatIsLoadedAgainContinuesItsStatistics) {
  const ModelPtr before = *catalogue_.Find("embed", "");
  before->counters->Failed(1);
  SetModels("other", "rank");
  EXPECT_FALSE(catalogue_.Find("embed", "").ok());
  SetModels("embed", "rank");
  const ModelPtr after = *catalogue_.Find("embed", "");
  EXPECT_NE(after, before);
  inference::ModelStatistics statistics;
  after->counters->Fill(&statistics);
  EXPECT_EQ(statistics.inference_stats().fail().count(), 1U);
}

}  // namespace
}  // namespace castor::server::oip
