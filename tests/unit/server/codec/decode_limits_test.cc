// What a message may have and take in memory before it is refused.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "engine/base/error.h"
#include "engine/encoder/text/spans.h"
#include "gtest/gtest.h"
#include "inference/grpc_service.pb.h"
#include "server/codec/attention_codec.h"
#include "server/codec/encoder_codec.h"
#include "server/codec/rerank_codec.h"
#include "server/oip/wire.h"
#include "tests/unit/server/codec/random_wire.h"
#include "tests/unit/server/codec/twin.h"

namespace castor::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using twin::FieldTag;
using twin::InSlices;
using twin::LengthField;
using twin::Varint;

constexpr int64_t kSequences = 10, kTokens = 50, kValues = 30, kText = 60;

DecodeBudget SmallBudget(int64_t max_bytes) {
  EngineOptions options;
  options.max_sequences = kSequences;
  options.max_queued_tokens = kTokens;
  options.max_queued_bytes = kValues * 4 + 3;
  options.max_text_bytes = kText;
  return DecodeBudget(options, max_bytes);
}

absl::Status DecodeTokens(const std::string& bytes, DecodeBudget& budget, DecodedEncode* out,
                          const std::vector<size_t>& slices = {}) {
  return DecodeEncodeRequest(InSlices(bytes, slices), {twin::Regions(), budget}, out);
}

// The most elements of every repeated field.
const std::map<std::string, int64_t> kMost = {
    {"castor.v1.Tensor.shape", 8},
    {"castor.v1.Automatic.allowed", 16},
    {"castor.v1.Positions.query", kSequences},
    {"castor.v1.Positions.key", kSequences},
    {"castor.v1.Positions.alibi_slopes", kValues},
    {"castor.v1.AttendRequest.query_lengths", kSequences},
    {"castor.v1.AttendRequest.key_lengths", kSequences},
    {"castor.v1.TextBatch.texts", kSequences},
    {"castor.v1.TextBatch.pairs", kSequences},
    {"castor.v1.TokenBatch.ids", kText},  // more than tokens
    {"castor.v1.TokenBatch.type_ids", kText},
    {"castor.v1.TokenBatch.lengths", kSequences},
    {"castor.v1.EmbeddingBatch.lengths", kSequences},
    {"castor.v1.Spans.ranges", encoder::kMostSpans},
    {"castor.v1.EncodeRequest.outputs", 16},
    {"castor.v1.RerankRequest.documents", kSequences},
    {"inference.InferTensorContents.int_contents", kText},
    {"inference.InferTensorContents.int64_contents", kText},
    {"inference.InferTensorContents.fp32_contents", kValues},
    {"inference.InferTensorContents.bytes_contents", kSequences},
    {"inference.ModelInferRequest.parameters", 256},
    {"inference.ModelInferRequest.inputs", 32},
    {"inference.ModelInferRequest.outputs", 32},
    {"inference.ModelInferRequest.raw_input_contents", 32},
    {"inference.ModelInferRequest.InferInputTensor.shape", 8},
    {"inference.ModelInferRequest.InferInputTensor.parameters", 256},
    {"inference.ModelInferRequest.InferRequestedOutputTensor.parameters", 256},
};

using Reading = std::function<absl::Status(const std::string& bytes)>;
using Wrap = std::function<std::string(std::string)>;

std::string Element(const FieldDescriptor& field) {
  const auto number = static_cast<uint32_t>(field.number());
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
    return FieldTag(number, 5) + std::string(4, '\0');
  }
  const bool sized = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
                     field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  return FieldTag(number, sized ? 2 : 0) + std::string(1, '\0');
}

// Each repeated field of the message and of those in it: with as many elements as it may have, and
// one more. `within` puts the message's bytes into those of the request. Returns how many there
// are.
int CheckFields(const Descriptor& message, const std::string& path, const Wrap& within,
                const Reading& decode) {
  int fields = 0;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    std::string name = path + field.name();
    if (field.is_repeated()) {
      const std::string element = Element(field);
      const auto most = kMost.find(field.full_name());
      if (most == kMost.end()) {
        // Numbers of a type that no input has are skipped.
        EXPECT_EQ(field.containing_type()->name(), "InferTensorContents") << field.full_name();
        continue;
      }
      ++fields;
      std::string bytes;
      for (int64_t k = 0; k < most->second; ++k) bytes += element;
      const absl::Status fits = decode(within(bytes));
      EXPECT_FALSE(twin::HasTooManyElements(fits)) << name << " " << fits;
      const absl::Status more = decode(within(bytes + element));
      EXPECT_TRUE(twin::HasTooManyElements(more)) << name << " " << more;
      EXPECT_EQ(ReasonOf(more), Reason::kInvalidField) << name;
      EXPECT_EQ(castor::FieldOf(more), name) << more;
      name = FieldAt(name, 0);
    }
    if (field.message_type() == nullptr) continue;
    fields += CheckFields(
        *field.message_type(), name + ".",
        [&](std::string bytes) {
          return within(LengthField(static_cast<uint32_t>(field.number()), bytes));
        },
        decode);
  }
  return fields;
}

template <wire::Message Ours, typename Theirs>
int CheckMessage() {
  return CheckFields(
      *Theirs::descriptor(), "", [](std::string bytes) { return bytes; },
      [](const std::string& bytes) {
        DecodeBudget budget = SmallBudget(INT64_MAX);
        SliceView slices(InSlices(bytes, {}), budget);
        Ours message;
        return wire::Parse(&slices, &message);
      });
}

TEST(DecodeLimitsTest, EveryRepeatedFieldIsRefusedAtTheFirstElementBeyondItsBound) {
  EXPECT_EQ((CheckMessage<wire::AttendRequest, v1::AttendRequest>()), 13);
  EXPECT_EQ((CheckMessage<wire::EncodeRequest, v1::EncodeRequest>()), 13);
  EXPECT_EQ((CheckMessage<wire::RerankRequest, v1::RerankRequest>()), 4);
  EXPECT_EQ((CheckMessage<wire::TokenizeRequest, v1::TokenizeRequest>()), 2);
  EXPECT_EQ((CheckMessage<wire::DetokenizeRequest, v1::DetokenizeRequest>()), 3);
  EXPECT_EQ((CheckMessage<oip::wire::ModelInferRequest, inference::ModelInferRequest>()), 11);
}

TEST(DecodeLimitsTest, PackedElementsCountAsWell) {
  DecodeBudget budget = SmallBudget(INT64_MAX);
  DecodedEncode out;
  const std::string ids = LengthField(1, std::string(kText, '\1'));
  EXPECT_TRUE(DecodeTokens(LengthField(4, ids), budget, &out).ok());
  const absl::Status more = DecodeTokens(LengthField(4, ids + LengthField(1, "\1")), budget, &out);
  EXPECT_EQ(ReasonOf(more), Reason::kInvalidField);
  EXPECT_EQ(castor::FieldOf(more), "tokens.ids");
}

// An id of one byte takes eight, and half as many again while its vector grows.
TEST(DecodeLimitsTest, MemoryIsTakenFromTheBudgetUntilTheDecodedFormIsGone) {
  constexpr int64_t kIds = 1 << 17, kMost = kIds * 8;
  DecodeBudget budget(EngineOptions(), 2 * kMost);
  const std::string bytes = LengthField(4, LengthField(1, std::string(kIds, '\1')));
  {
    DecodedEncode out, other;
    ASSERT_TRUE(DecodeTokens(bytes, budget, &out).ok());
    EXPECT_FALSE(budget.TakeBytes(kMost)) << "it holds more than half";
    const absl::Status full = DecodeTokens(bytes, budget, &other);
    EXPECT_EQ(ReasonOf(full), Reason::kQueueFull);
    EXPECT_TRUE(RetryAfterOf(full).has_value());
    const std::string small = LengthField(4, LengthField(1, std::string(1000, '\1')));
    EXPECT_TRUE(DecodeTokens(small, budget, &other).ok()) << "small ones have room";
    const DecodedEncode moved = std::move(out);
    EXPECT_FALSE(budget.TakeBytes(kMost));
  }
  EXPECT_TRUE(budget.TakeBytes(2 * kMost));
}

TEST(DecodeLimitsTest, JoinedTextsAndSlicesAreCounted) {
  constexpr int64_t kBytes = 1 << 20;
  DecodeBudget budget(EngineOptions(), kBytes / 2);
  DecodedEncode out;
  const std::string text = LengthField(3, LengthField(1, std::string(kBytes, 'a')));
  EXPECT_TRUE(DecodeTokens(text, budget, &out).ok()) << "in one slice";
  out = DecodedEncode();
  EXPECT_EQ(ReasonOf(DecodeTokens(text, budget, &out, {kBytes / 2})), Reason::kQueueFull);
  const std::string tensor = LengthField(5, LengthField(1, LengthField(3, text)));
  const std::vector<size_t> sizes(kBytes / 32, 32);
  EXPECT_EQ(ReasonOf(DecodeTokens(tensor, budget, &out, sizes)), Reason::kQueueFull);
  EXPECT_TRUE(budget.TakeBytes(kBytes / 2)) << "what found no room is given back";
}

}  // namespace
}  // namespace castor::server
