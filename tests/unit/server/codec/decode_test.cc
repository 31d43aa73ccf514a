// How the decoders treat particular requests: refusals and the field that they name,
// messages about malformed bytes, and the memory of texts.

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "engine/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/codec/attention_codec.h"
#include "server/codec/encoder_codec.h"
#include "tests/unit/server/codec/random_wire.h"
#include "tests/unit/server/codec/twin.h"

namespace castor::server {
namespace {

using twin::FieldTag;
using twin::InSlices;
using twin::LengthField;
using twin::Varint;

v1::AttendRequest SmallAttend() {
  v1::AttendRequest message;
  message.set_request_id("a");
  for (v1::Tensor* tensor :
       {message.mutable_query(), message.mutable_key(), message.mutable_value()}) {
    tensor->set_dtype(v1::FLOAT16);
    for (int64_t dimension : {3, 1, 2}) tensor->add_shape(dimension);
    tensor->set_raw(std::string(12, 'x'));
  }
  return message;
}

v1::EncodeRequest SmallEncode() {
  v1::EncodeRequest message;
  message.set_request_id("e");
  message.mutable_texts()->add_texts("beaver");
  return message;
}

absl::Status Decode(const v1::AttendRequest& message, DecodedAttend* out) {
  return DecodeAttendRequest(InSlices(message.SerializeAsString(), {}), twin::Regions(), out);
}

absl::Status Decode(const v1::EncodeRequest& message, DecodedEncode* out) {
  return DecodeEncodeRequest(InSlices(message.SerializeAsString(), {}), twin::Regions(), out);
}

// The refusal of a message, such as "INVALID_FIELD query.dtype"; "none" if it is accepted.
std::string Refusal(const absl::Status& status) {
  if (status.ok()) return "none";
  return std::string(NameOf(ReasonOf(status))) + " " + FieldOf(status).value_or("");
}

std::string Refusal(const v1::AttendRequest& message) {
  DecodedAttend out;
  return Refusal(Decode(message, &out));
}

std::string Refusal(const v1::EncodeRequest& message) {
  DecodedEncode out;
  return Refusal(Decode(message, &out));
}

TEST(DecodeAttendTest, ZeroParametersMeanTheDefault) {
  v1::AttendRequest message = SmallAttend();
  message.mutable_improved_clustered()->set_topk(0);
  DecodedAttend out;
  ASSERT_TRUE(Decode(message, &out).ok());
  const auto& kernel = std::get<ImprovedClustered>(out.request.kernel);
  EXPECT_EQ(kernel.clusters, 100);
  EXPECT_EQ(kernel.iterations, 10);
  EXPECT_EQ(kernel.bits, 63);
  EXPECT_TRUE(kernel.hash_bias);
  EXPECT_EQ(kernel.topk, 32);
  EXPECT_EQ(kernel.clustering, Clustered::Clustering::kHash);
  EXPECT_EQ(kernel.rest_mass, ImprovedClustered::RestMass::kCentroid);
  EXPECT_EQ(kernel.rest_groups, 1);
}

// Each change of a small request, and the field that its refusal names; "": it is accepted.
template <typename Message>
struct Change {
  std::string field;
  std::function<void(Message&)> change;
};

template <typename Message>
void ExpectRefusals(const Message& small, const std::vector<Change<Message>>& changes) {
  for (const auto& [field, change] : changes) {
    Message message = small;
    change(message);
    EXPECT_EQ(Refusal(message), field.empty() ? "none" : "INVALID_FIELD " + field);
  }
}

TEST(DecodeAttendTest, RefusesWhatOnlyTheWireCanExpress) {
  using M = v1::AttendRequest;
  ExpectRefusals<M>(
      SmallAttend(),
      {{"", [](M&) {}},
       {"", [](M& m) { m.set_request_id(std::string(256, 'i')); }},
       {"request_id", [](M& m) { m.set_request_id(std::string(257, 'i')); }},
       {"query", [](M& m) { m.clear_query(); }},
       {"key", [](M& m) { m.clear_key(); }},
       {"value", [](M& m) { m.clear_value(); }},
       {"key.dtype", [](M& m) { m.mutable_key()->clear_dtype(); }},
       {"key.dtype", [](M& m) { m.mutable_key()->set_dtype(static_cast<v1::DataType>(8)); }},
       {"value.raw", [](M& m) { m.mutable_value()->clear_raw(); }},
       {"priority", [](M& m) { m.set_priority(static_cast<v1::Priority>(-1)); }},
       {"automatic.allowed[1]",
        [](M& m) {
          m.mutable_automatic()->add_allowed(v1::VANILLA);
          m.mutable_automatic()->add_allowed(v1::KERNEL_NAME_UNSPECIFIED);
        }},
       {"", [](M& m) { m.mutable_clustered()->set_clusters(-5); }}});  // for the engine to refuse
}

// What exact kernels and CAST do not read is refused, never ignored.
TEST(DecodeAttendTest, FidelityIsOfApproximations) {
  using M = v1::AttendRequest;
  M message = SmallAttend();
  message.set_fidelity_rows(8);
  ExpectRefusals<M>(message, {{"fidelity_rows", [](M&) {}},  // vanilla is the default
                              {"fidelity_rows", [](M& m) { m.mutable_vanilla(); }},
                              {"fidelity_rows",
                               [](M& m) {
                                 m.mutable_cast()->set_layer("model/0");
                                 *m.mutable_cast()->mutable_gate() = m.query();
                               }},
                              {"", [](M& m) { m.mutable_clustered(); }},
                              {"", [](M& m) { m.mutable_improved_clustered(); }},
                              {"", [](M& m) { m.mutable_automatic(); }}});
}

// Where nothing is hashed, parameters of a hash are refused, never ignored.
template <typename Kernel>
void ExpectClusteringRefusals(Kernel* (v1::AttendRequest::*kernel)(), const std::string& name) {
  using M = v1::AttendRequest;
  const auto with = [&](v1::QueryClustering clustering, auto set) {
    return [=](M& m) {
      (m.*kernel)()->set_clustering(clustering);
      set((m.*kernel)());
    };
  };
  const auto bits = [](Kernel* k) { k->set_bits(63); };
  const auto bias = [](Kernel* k) { k->set_hash_bias(true); };
  ExpectRefusals<M>(SmallAttend(), {{name + ".clustering",
                                     with(static_cast<v1::QueryClustering>(3), [](Kernel*) {})},
                                    {"", with(v1::HASH, bits)},
                                    {name + ".bits", with(v1::QUERY_SPACE, bits)},
                                    {"", with(v1::HASH, bias)},
                                    {name + ".hash_bias", with(v1::QUERY_SPACE, bias)}});
}

TEST(DecodeAttendTest, NothingOfAHashIsIgnored) {
  ExpectClusteringRefusals(&v1::AttendRequest::mutable_clustered, "clustered");
  ExpectClusteringRefusals(&v1::AttendRequest::mutable_improved_clustered, "improved_clustered");
  v1::AttendRequest message = SmallAttend();
  message.mutable_improved_clustered()->set_rest_mass(
      static_cast<v1::ImprovedClustered_RestMass>(-1));
  EXPECT_EQ(Refusal(message), "INVALID_FIELD improved_clustered.rest_mass");
}

TEST(DecodeAttendTest, CastNeedsItsTensors) {
  v1::AttendRequest message = SmallAttend();
  v1::Cast* cast = message.mutable_cast();
  EXPECT_EQ(Refusal(message), "INVALID_FIELD cast.surrogate_tokens");
  cast->set_layer("model/0");
  EXPECT_EQ(Refusal(message), "INVALID_FIELD cast.gate");
  cast->mutable_gate()->set_dtype(v1::FLOAT32);
  EXPECT_EQ(Refusal(message), "INVALID_FIELD cast.gate.raw");
  cast->mutable_gate()->set_raw("xxxx");
  EXPECT_EQ(Refusal(message), "none");
  cast->set_gate_temperature(static_cast<v1::Cast_GateTemperature>(3));
  EXPECT_EQ(Refusal(message), "INVALID_FIELD cast.gate_temperature");
}

TEST(DecodeEncodeTest, RefusesWhatOnlyTheWireCanExpress) {
  using M = v1::EncodeRequest;
  ExpectRefusals<M>(
      SmallEncode(),
      {{"input", [](M& m) { m.clear_texts(); }},
       {"embeddings.values", [](M& m) { m.mutable_embeddings(); }},
       {"embeddings.values.dtype", [](M& m) { m.mutable_embeddings()->mutable_values(); }},
       {"", [](M& m) { m.set_output(v1::SPARSE); }},  // the model may have it
       {"output", [](M& m) { m.set_output(static_cast<v1::EncodeOutput>(6)); }},
       {"pooling", [](M& m) { m.set_pooling(static_cast<v1::Pooling>(8)); }},
       {"spans.ranges", [](M& m) { m.mutable_spans(); }},
       {"spans.unit",
        [](M& m) {
          m.mutable_spans()->add_ranges();
          m.mutable_spans()->set_unit(static_cast<v1::Spans::Unit>(4));
        }},
       {"", [](M& m) { m.mutable_automatic(); }},
       {"automatic.max_relative_error",
        [](M& m) { m.mutable_automatic()->set_max_relative_error(0.1); }},
       {"", [](M& m) { m.mutable_cast(); }}});  // the model provides the tensors
}

// ---- shared memory -----------------------------------------------------------------------------

void SetRef(const char* region, int64_t offset, int64_t size, v1::SharedMemoryRef* ref) {
  ref->set_region(region);
  ref->set_offset(offset);
  ref->set_size(size);
}

// The refusal of a small request whose output, of 12 bytes, has this reference.
std::string OutputRefusal(const char* region, int64_t offset, int64_t size) {
  v1::AttendRequest message = SmallAttend();
  SetRef(region, offset, size, message.mutable_output());
  return Refusal(message);
}

TEST(SharedMemoryTest, TheOutputsRangeHasTheOutputsSize) {
  EXPECT_EQ(OutputRefusal("r", 0, 12), "none");
  EXPECT_EQ(OutputRefusal("r", 0, 11), "INVALID_FIELD output.size");
  EXPECT_EQ(OutputRefusal("r", 0, 0), "INVALID_FIELD output.size");
  // Query [3, 1, 2] and value [3, 1, 5], two bytes per element.
  v1::AttendRequest message = SmallAttend();
  message.mutable_value()->set_shape(2, 5);
  SetRef("r", 0, 30, message.mutable_output());
  EXPECT_EQ(Refusal(message), "none");
  // Values of one element, which begin the keys.
  message.set_value_is_key_prefix(true);
  message.set_value_dim(1);
  message.clear_value();
  EXPECT_EQ(Refusal(message), "INVALID_FIELD output.size");
  SetRef("r", 0, 6, message.mutable_output());
  EXPECT_EQ(Refusal(message), "none");
  // Shapes whose size overflows are for the engine to refuse.
  message.mutable_query()->set_shape(0, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Refusal(message), "none");
}

// ---- malformed bytes ---------------------------------------------------------------------------

std::string MalformedMessage(const std::string& bytes) {
  DecodedAttend out;
  const absl::Status status = DecodeAttendRequest(InSlices(bytes, {}), twin::Regions(), &out);
  EXPECT_EQ(ReasonOf(status), Reason::kMalformedMessage);
  return std::string(status.message());
}

TEST(MalformedTest, SaysWhere) {
  const std::string id = LengthField(1, "id");
  EXPECT_EQ(MalformedMessage(LengthField(2, FieldTag(2, 2) + Varint(uint64_t{1} << 34))),
            "query.shape[0]: at byte 2: a length of 17179869184 where 0 bytes are left");
  EXPECT_EQ(MalformedMessage(id + LengthField(2, LengthField(2, "\x01\x02\x80"))),
            "query.shape[2]: at byte 6: the message ends inside a field");
  EXPECT_EQ(MalformedMessage(id + std::string(1, '\0')), "at byte 4: field number 0");
  EXPECT_EQ(MalformedMessage(LengthField(1, "\xc3")),
            "request_id: at byte 0: a string that is not valid UTF-8");
}

TEST(MalformedTest, KeepsTheRequestIdForTheLog) {
  DecodedAttend out;
  EXPECT_FALSE(
      DecodeAttendRequest(InSlices(LengthField(1, "id") + "\x0f", {}), twin::Regions(), &out).ok());
  EXPECT_EQ(out.request.call.request_id, "id");
}

// ---- memory ------------------------------------------------------------------------------------

TEST(CopyTest, AViewSurvivesMovesAndTheBuffer) {
  // Slices of up to 23 bytes lie inside gRPC's slice object, not behind a pointer.
  const std::string bytes = SmallEncode().SerializeAsString();
  DecodedEncode moved;
  {
    DecodedEncode out;
    const size_t sizes[] = {3, 4, 2};
    ASSERT_TRUE(DecodeEncodeRequest(InSlices(bytes, sizes), twin::Regions(), &out).ok());
    moved = std::move(out);
  }
  EXPECT_EQ(std::get<TextInput>(moved.request.input).texts[0], "beaver");
}

TEST(CopyTest, TextsOfManySlicesAreJoinedInFewBlocks) {
  v1::EncodeRequest message = SmallEncode();
  std::vector<std::string> texts = {"beaver"};
  for (int i = 0; i < 100; ++i) {
    texts.emplace_back(static_cast<size_t>(1000 * i), static_cast<char>('a' + i % 26));
    message.mutable_texts()->add_texts(texts.back());
  }
  const std::string bytes = message.SerializeAsString();
  const std::vector<size_t> sizes(bytes.size() / 999, 999);
  DecodedEncode moved;
  {
    DecodedEncode out;
    ASSERT_TRUE(DecodeEncodeRequest(InSlices(bytes, sizes), twin::Regions(), &out).ok());
    moved = std::move(out);
  }
  const std::vector<std::string_view>& read = std::get<TextInput>(moved.request.input).texts;
  EXPECT_THAT(read, testing::ElementsAreArray(texts));
  // Texts of one block follow each other.
  int blocks = 1;
  for (size_t i = 4; i < read.size(); ++i) {
    if (read[i].data() != read[i - 1].data() + read[i - 1].size()) ++blocks;
  }
  EXPECT_LT(blocks, 16);
}

}  // namespace
}  // namespace castor::server
