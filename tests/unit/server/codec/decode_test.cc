// How the decoders treat particular requests: defaults, refusals and the field that they name,
// messages about malformed bytes, and that tensors are not copied.

#include <limits>
#include <memory>
#include <string>
#include <utility>

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

constexpr char kTenant[] = "tenant";

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

TEST(DecodeAttendTest, DefaultsStandForWhatIsAbsent) {
  DecodedAttend out;
  ASSERT_TRUE(Decode(SmallAttend(), &out).ok());
  const AttentionRequest& request = out.request;
  EXPECT_EQ(request.call.request_id, "a");
  EXPECT_EQ(request.call.priority, Priority::kNormal);
  EXPECT_EQ(request.query.dtype, DType::kFloat16);
  EXPECT_EQ(request.query.shape, (std::vector<int64_t>{3, 1, 2}));
  EXPECT_EQ(request.query.size_bytes(), 12);
  EXPECT_FALSE(request.softmax_scale.has_value());
  ASSERT_TRUE(std::holds_alternative<Vanilla>(request.kernel));
  EXPECT_FALSE(std::get<Vanilla>(request.kernel).causal);
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
}

TEST(DecodeAttendTest, QuerySpaceHasItsOwnDefault) {
  v1::AttendRequest message = SmallAttend();
  message.mutable_improved_clustered()->set_clustering(v1::QUERY_SPACE);
  message.mutable_improved_clustered()->set_rest_mass(v1::ImprovedClustered::QUERY);
  DecodedAttend out;
  ASSERT_TRUE(Decode(message, &out).ok());
  const auto& kernel = std::get<ImprovedClustered>(out.request.kernel);
  EXPECT_EQ(kernel.clustering, Clustered::Clustering::kQuerySpace);
  EXPECT_EQ(kernel.rest_mass, ImprovedClustered::RestMass::kQuery);
  EXPECT_EQ(kernel.iterations, DefaultIterations(Clustered::Clustering::kQuerySpace));
  EXPECT_NE(kernel.iterations, DefaultIterations(Clustered::Clustering::kHash));
  message.mutable_improved_clustered()->set_iterations(10);
  DecodedAttend again;
  ASSERT_TRUE(Decode(message, &again).ok());
  EXPECT_EQ(std::get<ImprovedClustered>(again.request.kernel).iterations, 10);
}

TEST(DecodeAttendTest, RangesAreLeftToTheEngine) {
  v1::AttendRequest message = SmallAttend();
  message.mutable_clustered()->set_clusters(-5);
  message.set_fidelity_rows(-1);
  DecodedAttend out;
  ASSERT_TRUE(Decode(message, &out).ok());
  EXPECT_EQ(std::get<Clustered>(out.request.kernel).clusters, -5);
  EXPECT_EQ(out.request.fidelity_rows, -1);
}

TEST(DecodeAttendTest, RefusesWhatOnlyTheWireCanExpress) {
  const auto refusal = [](auto change) {
    v1::AttendRequest message = SmallAttend();
    change(message);
    return Refusal(message);
  };
  using M = v1::AttendRequest;
  EXPECT_EQ(refusal([](M&) {}), "none");
  EXPECT_EQ(refusal([](M& m) { m.set_request_id(std::string(256, 'i')); }), "none");
  EXPECT_EQ(refusal([](M& m) { m.set_request_id(std::string(257, 'i')); }),
            "INVALID_FIELD request_id");
  EXPECT_EQ(refusal([](M& m) { m.clear_query(); }), "INVALID_FIELD query");
  EXPECT_EQ(refusal([](M& m) { m.clear_key(); }), "INVALID_FIELD key");
  EXPECT_EQ(refusal([](M& m) { m.clear_value(); }), "INVALID_FIELD value");
  EXPECT_EQ(refusal([](M& m) { m.mutable_key()->clear_dtype(); }), "INVALID_FIELD key.dtype");
  EXPECT_EQ(refusal([](M& m) { m.mutable_key()->set_dtype(static_cast<v1::DataType>(8)); }),
            "INVALID_FIELD key.dtype");
  EXPECT_EQ(refusal([](M& m) { m.mutable_value()->clear_raw(); }), "INVALID_FIELD value.raw");
  EXPECT_EQ(refusal([](M& m) { m.set_priority(static_cast<v1::Priority>(-1)); }),
            "INVALID_FIELD priority");
  EXPECT_EQ(refusal([](M& m) {
              m.mutable_automatic()->add_allowed(v1::VANILLA);
              m.mutable_automatic()->add_allowed(v1::KERNEL_NAME_UNSPECIFIED);
            }),
            "INVALID_FIELD automatic.allowed[1]");
}

// What exact kernels and CAST do not read is refused, never ignored.
TEST(DecodeAttendTest, FidelityIsOfApproximations) {
  v1::AttendRequest message = SmallAttend();
  message.set_fidelity_rows(8);
  EXPECT_EQ(Refusal(message), "INVALID_FIELD fidelity_rows") << "vanilla is the default";
  message.mutable_vanilla();
  EXPECT_EQ(Refusal(message), "INVALID_FIELD fidelity_rows");
  message.mutable_cast()->set_layer("model/0");
  *message.mutable_cast()->mutable_gate() = message.query();
  EXPECT_EQ(Refusal(message), "INVALID_FIELD fidelity_rows");
  message.mutable_clustered();
  EXPECT_EQ(Refusal(message), "none");
  message.mutable_improved_clustered();
  EXPECT_EQ(Refusal(message), "none");
  message.mutable_automatic();
  EXPECT_EQ(Refusal(message), "none");
}

TEST(DecodeEncodeTest, ErrorsAreOfAttention) {
  v1::EncodeRequest message = SmallEncode();
  message.mutable_automatic();
  EXPECT_EQ(Refusal(message), "none");
  message.mutable_automatic()->set_max_relative_error(0.1);
  EXPECT_EQ(Refusal(message), "INVALID_FIELD automatic.max_relative_error");
}

// Both kernels have the same parameters of clustering.
template <typename Kernel>
void ExpectClusteringRefusals(Kernel* (v1::AttendRequest::*kernel)(), const std::string& name) {
  const auto refusal = [&](auto change) {
    v1::AttendRequest message = SmallAttend();
    change((message.*kernel)());
    return Refusal(message);
  };
  EXPECT_EQ(refusal([](Kernel* k) { k->set_clustering(static_cast<v1::QueryClustering>(3)); }),
            "INVALID_FIELD " + name + ".clustering");
  const auto with_bits = [](v1::QueryClustering clustering) {
    return [clustering](Kernel* k) {
      k->set_clustering(clustering);
      k->set_bits(63);
    };
  };
  EXPECT_EQ(refusal(with_bits(v1::HASH)), "none");
  EXPECT_EQ(refusal(with_bits(v1::QUERY_SPACE)), "INVALID_FIELD " + name + ".bits");
  const auto with_bias = [](v1::QueryClustering clustering) {
    return [clustering](Kernel* k) {
      k->set_clustering(clustering);
      k->set_hash_bias(true);
    };
  };
  EXPECT_EQ(refusal(with_bias(v1::HASH)), "none");
  EXPECT_EQ(refusal(with_bias(v1::QUERY_SPACE)), "INVALID_FIELD " + name + ".hash_bias");
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

TEST(DecodeEncodeTest, DefaultsStandForWhatIsAbsent) {
  DecodedEncode out;
  ASSERT_TRUE(Decode(SmallEncode(), &out).ok());
  const EncodeRequest& request = out.request;
  EXPECT_THAT(std::get<TextInput>(request.input).texts, ::testing::ElementsAre("beaver"));
  EXPECT_FALSE(request.kernel.has_value());
  EXPECT_FALSE(request.output.has_value());
  EXPECT_FALSE(request.pooling.has_value());
  EXPECT_FALSE(request.normalize.has_value());
  EXPECT_TRUE(request.spans.ranges.empty());
  EXPECT_FALSE(request.prompt_name.has_value());
  EXPECT_TRUE(request.truncate);
  EXPECT_TRUE(request.check_finite);
}

TEST(DecodeEncodeTest, RefusesWhatOnlyTheWireCanExpress) {
  const auto refusal = [](auto change) {
    v1::EncodeRequest message = SmallEncode();
    change(message);
    return Refusal(message);
  };
  using M = v1::EncodeRequest;
  EXPECT_EQ(refusal([](M& m) { m.clear_texts(); }), "INVALID_FIELD input");
  EXPECT_EQ(refusal([](M& m) { m.mutable_embeddings(); }), "INVALID_FIELD embeddings.values");
  EXPECT_EQ(refusal([](M& m) { m.mutable_embeddings()->mutable_values(); }),
            "INVALID_FIELD embeddings.values.dtype");
  EXPECT_EQ(refusal([](M& m) { m.set_output(v1::SPARSE); }), "none");  // the model may have it
  EXPECT_EQ(refusal([](M& m) { m.set_output(static_cast<v1::EncodeOutput>(6)); }),
            "INVALID_FIELD output");
  EXPECT_EQ(refusal([](M& m) { m.set_pooling(static_cast<v1::Pooling>(8)); }),
            "INVALID_FIELD pooling");
  EXPECT_EQ(refusal([](M& m) { m.mutable_spans(); }), "INVALID_FIELD spans.ranges");
  EXPECT_EQ(refusal([](M& m) {
              m.mutable_spans()->add_ranges();
              m.mutable_spans()->set_unit(static_cast<v1::Spans::Unit>(4));
            }),
            "INVALID_FIELD spans.unit");
  EXPECT_EQ(refusal([](M& m) { m.mutable_cast(); }), "none");  // the model provides the tensors
}

// ---- shared memory -----------------------------------------------------------------------------

void SetRef(const char* region, int64_t offset, int64_t size, v1::SharedMemoryRef* ref) {
  ref->set_region(region);
  ref->set_offset(offset);
  ref->set_size(size);
}

// The refusal of a small request whose key has this reference.
std::string KeyRefusal(const char* region, int64_t offset, int64_t size) {
  v1::AttendRequest message = SmallAttend();
  SetRef(region, offset, size, message.mutable_key()->mutable_shared_memory());
  return Refusal(message);
}

// The refusal of a small request whose output, of 12 bytes, has this reference.
std::string OutputRefusal(const char* region, int64_t offset, int64_t size) {
  v1::AttendRequest message = SmallAttend();
  SetRef(region, offset, size, message.mutable_output());
  return Refusal(message);
}

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Region "r" has 4096 bytes and begins at byte 100 of its file.
TEST(SharedMemoryTest, ATensorBecomesARangeOfTheRegionsFile) {
  v1::AttendRequest message = SmallAttend();
  SetRef("r", 64, 12, message.mutable_key()->mutable_shared_memory());
  SetRef("r", 4084, 12, message.mutable_output());
  DecodedAttend out;
  ASSERT_TRUE(Decode(message, &out).ok());
  EXPECT_FALSE(out.request.query.file.has_value());
  ASSERT_TRUE(out.request.key.file.has_value());
  EXPECT_EQ(out.request.key.file->offset, 164);
  EXPECT_EQ(out.request.key.size_bytes(), 12);
  EXPECT_TRUE(out.request.key.pieces.empty());
  EXPECT_EQ(out.regions.input_bytes(), 12u);
  ASSERT_TRUE(out.output.has_value());
  EXPECT_EQ(out.output->region->info().name, "r");
  EXPECT_EQ(out.output->offset, 4084);
  EXPECT_EQ(out.output->file.offset, 4184);
}

TEST(SharedMemoryTest, EmbeddingsBecomeARangeOfTheRegionsFile) {
  v1::EncodeRequest message = SmallEncode();
  v1::Tensor* values = message.mutable_embeddings()->mutable_values();
  values->set_dtype(v1::FLOAT32);
  SetRef("r", 0, 8, values->mutable_shared_memory());
  DecodedEncode out;
  ASSERT_TRUE(Decode(message, &out).ok());
  EXPECT_EQ(std::get<EmbeddingInput>(out.request.input).values.file->offset, 100);
  SetRef("s", 0, 8, values->mutable_shared_memory());
  EXPECT_EQ(Refusal(message), "REGION_NOT_FOUND embeddings.values.shared_memory.region");
}

TEST(SharedMemoryTest, RangesOutsideOfTheRegionAreRefused) {
  EXPECT_EQ(KeyRefusal("r", 0, 4096), "none");
  EXPECT_EQ(KeyRefusal("r", 4096, 0), "none");
  EXPECT_EQ(KeyRefusal("", 0, 12), "REGION_NOT_FOUND key.shared_memory.region");
  EXPECT_EQ(KeyRefusal("s", 0, 12), "REGION_NOT_FOUND key.shared_memory.region");
  EXPECT_EQ(KeyRefusal("r", -1, 12), "INVALID_FIELD key.shared_memory.offset");
  EXPECT_EQ(KeyRefusal("r", kMin, 12), "INVALID_FIELD key.shared_memory.offset");
  EXPECT_EQ(KeyRefusal("r", 4097, 0), "INVALID_FIELD key.shared_memory.offset");
  EXPECT_EQ(KeyRefusal("r", kMax, kMax), "INVALID_FIELD key.shared_memory.offset");
  EXPECT_EQ(KeyRefusal("r", 0, -1), "INVALID_FIELD key.shared_memory.size");
  EXPECT_EQ(KeyRefusal("r", 4085, 12), "INVALID_FIELD key.shared_memory.size");
  EXPECT_EQ(KeyRefusal("r", 4096, kMax), "INVALID_FIELD key.shared_memory.size");
  EXPECT_EQ(KeyRefusal("r", 1, kMin), "INVALID_FIELD key.shared_memory.size");
  EXPECT_EQ(OutputRefusal("s", 0, 12), "REGION_NOT_FOUND output.region");
  EXPECT_EQ(OutputRefusal("r", kMax - 5, 12), "INVALID_FIELD output.offset");
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
  message.mutable_query()->set_shape(0, kMax);
  EXPECT_EQ(Refusal(message), "none");
}

TEST(SharedMemoryTest, ReferencesAreRefusedWhereItIsOff) {
  v1::AttendRequest message = SmallAttend();
  SetRef("r", 0, 12, message.mutable_output());
  const SharedMemory off(0);
  DecodedAttend out;
  const auto bytes = InSlices(message.SerializeAsString(), {});
  absl::Status status = DecodeAttendRequest(bytes, {{off, kTenant}, twin::Regions().budget}, &out);
  EXPECT_EQ(Refusal(status), "SHARED_MEMORY_OFF output");
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("--shared-memory"));
}

TEST(SharedMemoryTest, ARegionOutlivesItsRegistrationWithTheRequest) {
  SharedMemory regions(1);
  auto region = std::make_shared<const SharedRegion>(RegionInfo{"mine", "/no-file", 0, 24}, -1);
  const std::weak_ptr<const SharedRegion> alive = region;
  ASSERT_TRUE(regions.Add(kTenant, std::move(region)).ok());
  v1::AttendRequest message = SmallAttend();
  SetRef("mine", 0, 12, message.mutable_key()->mutable_shared_memory());
  {
    DecodedAttend out;
    const auto bytes = InSlices(message.SerializeAsString(), {});
    ASSERT_TRUE(
        DecodeAttendRequest(bytes, {{regions, kTenant}, twin::Regions().budget}, &out).ok());
    ASSERT_TRUE(regions.Remove(kTenant, "mine").ok());
    EXPECT_FALSE(alive.expired());
  }
  EXPECT_TRUE(alive.expired());
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

TEST(CopyTest, TensorsOf16MiBStayInTheirSlices) {
  v1::AttendRequest message = SmallAttend();
  const size_t tensor_bytes = 16 << 20;
  message.mutable_query()->set_raw(std::string(tensor_bytes, 'q'));
  const std::string bytes = message.SerializeAsString();
  // Slices as gRPC receives them.
  std::vector<size_t> sizes(bytes.size() / 65536, 65536);
  const grpc::ByteBuffer buffer = InSlices(bytes, sizes);
  std::vector<grpc::Slice> received;
  ASSERT_TRUE(buffer.Dump(&received).ok());

  DecodedAttend out;
  ASSERT_TRUE(DecodeAttendRequest(buffer, twin::Regions(), &out).ok());
  const TensorInput& query = out.request.query;
  EXPECT_EQ(query.size_bytes(), static_cast<int64_t>(tensor_bytes));
  EXPECT_LE(query.pieces.size(), received.size());
  size_t slice = 0;
  for (ByteSpan piece : query.pieces) {
    const auto* begin = reinterpret_cast<const uint8_t*>(piece.data());
    while (slice < received.size() &&
           !(received[slice].begin() <= begin && begin + piece.size() <= received[slice].end())) {
      ++slice;
    }
  }
  EXPECT_LT(slice, received.size()) << "a piece lies in no slice";
}

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
