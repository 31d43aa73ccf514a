// Answers: protobuf must read back what was encoded. The tensor's memory is sent without a copy and
// given back afterwards.

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "engine/base/host_memory.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "server/codec/attention_codec.h"
#include "server/codec/encoder_codec.h"
#include "server/codec/response.h"
#include "tests/support/seeded.h"

namespace castor::server {
namespace {

using google::protobuf::util::MessageDifferencer;

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

class EncodeTest : public ::testing::Test {
 protected:
  EncodeTest() : random_(seed_) { std::printf("seed %u\n", seed_); }

  // A tensor of random bytes in pool memory; `raw` receives a copy of them.
  TensorResult DrawTensor(DType dtype, std::vector<int64_t> shape, std::string* raw) {
    const auto size = static_cast<size_t>(*NumBytes(dtype, shape));
    raw->resize(size);
    for (char& byte : *raw) byte = static_cast<char>(random_());
    HostBuffer buffer = *pool_->Allocate(size);
    if (size > 0) std::memcpy(buffer.data(), raw->data(), size);
    return {.dtype = dtype, .shape = std::move(shape), .data = std::move(buffer)};
  }

  const unsigned seed_ = TestSeed();
  std::mt19937 random_;
  const std::shared_ptr<HostPool> pool_ = MakeHostPool(SystemMemory(), 1 << 20);
};

ExecutionReport SomeReport() {
  return {
      .kernel = {.kernel = Vanilla{.causal = true},
                 .device = "cpu",
                 .backend = "cpu-sdpa",
                 .predicted_us = 1.5,
                 .measured_us = 2.5,
                 .rejected = {{Clustered{.clusters = 50, .seed = 3}, 13, 0.5},
                              {ImprovedClustered{}, 14, 0.75}}},
      .timing = {.decode_us = 1, .queue_us = 2, .copy_in_us = 3, .compute_us = 4, .copy_out_us = 5},
      .batch = {.requests = 6, .tokens = 7, .padded_tokens = 8},
      .memory = {.workspace_bytes = 9, .peak_bytes = 10},
      .fidelity = Fidelity{.rows = 11, .relative_error = 0.25, .probe_us = 12},
  };
}

// SomeReport in protobuf's form.
template <typename Response>
void AddSomeReport(double total_us, Response* out) {
  v1::KernelReport* kernel = out->mutable_kernel();
  kernel->set_name(v1::VANILLA);
  kernel->mutable_vanilla()->set_causal(true);
  kernel->set_device("cpu");
  kernel->set_backend("cpu-sdpa");
  kernel->set_predicted_us(1.5);
  kernel->set_measured_us(2.5);
  v1::RejectedKernel* rejected = kernel->add_rejected();
  rejected->set_name(v1::CLUSTERED);
  rejected->set_measured_us(13);
  rejected->set_relative_error(0.5);
  rejected->mutable_clustered()->set_clusters(50);
  rejected->mutable_clustered()->set_iterations(10);
  rejected->mutable_clustered()->set_bits(63);
  rejected->mutable_clustered()->set_hash_bias(true);
  rejected->mutable_clustered()->set_seed(3);
  rejected->mutable_clustered()->set_clustering(v1::HASH);
  rejected = kernel->add_rejected();
  rejected->set_name(v1::IMPROVED_CLUSTERED);
  rejected->set_measured_us(14);
  rejected->set_relative_error(0.75);
  rejected->mutable_improved_clustered()->set_clusters(100);
  rejected->mutable_improved_clustered()->set_iterations(10);
  rejected->mutable_improved_clustered()->set_bits(63);
  rejected->mutable_improved_clustered()->set_hash_bias(true);
  rejected->mutable_improved_clustered()->set_seed(0);
  rejected->mutable_improved_clustered()->set_topk(32);
  rejected->mutable_improved_clustered()->set_clustering(v1::HASH);
  rejected->mutable_improved_clustered()->set_rest_mass(v1::ImprovedClustered::CENTROID);
  v1::Timing* timing = out->mutable_timing();
  timing->set_decode_us(1);
  timing->set_queue_us(2);
  timing->set_copy_in_us(3);
  timing->set_compute_us(4);
  timing->set_copy_out_us(5);
  timing->set_total_us(total_us);
  out->mutable_batch()->set_requests(6);
  out->mutable_batch()->set_tokens(7);
  out->mutable_batch()->set_padded_tokens(8);
  out->mutable_memory()->set_workspace_bytes(9);
  out->mutable_memory()->set_peak_bytes(10);
}

template <typename Response>
void ExpectParsesTo(const grpc::ByteBuffer& buffer, const Response& expected) {
  Response parsed;
  ASSERT_TRUE(parsed.ParseFromString(BytesOf(buffer)));
  MessageDifferencer differencer;
  std::string difference;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(expected, parsed)) << difference;
}

TEST_F(EncodeTest, AttendCarriesEverything) {
  // Sizes around each step in the length of the length fields, and an output without rows.
  for (int64_t tokens : {0, 1, 31, 32, 33, 4095, 4096, 4097, 300000}) {
    AttentionResult result;
    std::string raw;
    result.output = DrawTensor(DType::kBFloat16, {tokens, 1, 2}, &raw);
    result.report = SomeReport();

    v1::AttendResponse expected;
    expected.set_request_id("id");
    expected.mutable_output()->set_dtype(v1::BFLOAT16);
    for (int64_t dimension : {tokens, int64_t{1}, int64_t{2}}) {
      expected.mutable_output()->add_shape(dimension);
    }
    expected.mutable_output()->set_raw(raw);
    AddSomeReport(12.5, &expected);
    expected.mutable_fidelity()->set_rows(11);
    expected.mutable_fidelity()->set_relative_error(0.25);
    expected.mutable_fidelity()->set_probe_us(12);
    ExpectParsesTo(EncodeAttendResponse("id", std::move(result), 12.5), expected);
  }
}

TEST_F(EncodeTest, AnOutputInSharedMemoryIsNamedAndNotSent) {
  AttentionResult result;
  std::string raw;
  result.output = DrawTensor(DType::kFloat32, {3, 1, 2}, &raw);
  result.report = SomeReport();
  OutputRange output;
  output.region = std::make_shared<const SharedRegion>(RegionInfo{"r", "/no-file", 100, 4096}, -1);
  output.offset = 8;
  output.file = {.descriptor = -1, .offset = 108, .size = 24};

  v1::AttendResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(BytesOf(EncodeAttendResponse("id", std::move(result), 12.5))));
  v1::SharedMemoryRef* ref = parsed.mutable_output()->mutable_shared_memory();
  ref->set_region("r");
  ref->set_offset(8);
  ref->set_size(24);
  result.output = DrawTensor(DType::kFloat32, {3, 1, 2}, &raw);
  result.report = SomeReport();
  ExpectParsesTo(EncodeAttendResponse("id", std::move(result), output, 12.5), parsed);
}

// Behind the output, and by itself where the output is in shared memory.
TEST_F(EncodeTest, ALogSumExpIsAlwaysSent) {
  OutputRange output;
  output.region = std::make_shared<const SharedRegion>(RegionInfo{"r", "/no-file", 0, 4096}, -1);
  for (int64_t tokens : {0, 1, 31, 4096, 300000}) {
    for (const bool shared : {false, true}) {
      AttentionResult result;
      std::string raw;
      std::string log_raw;
      result.output = DrawTensor(DType::kBFloat16, {tokens, 2, 3}, &raw);
      result.log_sum_exp.emplace(DrawTensor(DType::kFloat32, {tokens, 2}, &log_raw));
      grpc::ByteBuffer bytes = shared ? EncodeAttendResponse("", std::move(result), output, 0)
                                      : EncodeAttendResponse("", std::move(result), 0);
      v1::AttendResponse parsed;
      ASSERT_TRUE(parsed.ParseFromString(BytesOf(std::move(bytes))));
      EXPECT_EQ(parsed.output().has_shared_memory(), shared);
      EXPECT_EQ(parsed.output().raw(), shared ? "" : raw);
      EXPECT_EQ(parsed.log_sum_exp().dtype(), v1::FLOAT32);
      EXPECT_THAT(parsed.log_sum_exp().shape(), ::testing::ElementsAre(tokens, 2));
      EXPECT_EQ(parsed.log_sum_exp().raw(), log_raw);
    }
  }
}

TEST_F(EncodeTest, EncodeCarriesEverything) {
  EncodeResult result;
  std::string raw;
  result.model = "minilm";
  result.output = DrawTensor(DType::kFloat32, {3, 384}, &raw);
  result.lengths = {1, 1, 1};
  result.token_counts = {5, 300, 512};
  result.truncated = {false, false, true};
  result.spans = {{.begin = 1, .end = 4}, {.begin = 511, .end = 511, .truncated = true}};
  result.prompt_name = "query";
  result.report = SomeReport();

  v1::EncodeResponse expected;
  expected.set_request_id("id");
  expected.set_model("minilm");
  expected.mutable_output()->set_dtype(v1::FLOAT32);
  expected.mutable_output()->add_shape(3);
  expected.mutable_output()->add_shape(384);
  expected.mutable_output()->set_raw(raw);
  for (int64_t length : {1, 1, 1}) expected.add_lengths(length);
  for (int64_t count : {5, 300, 512}) expected.add_token_counts(count);
  for (bool cut : {false, false, true}) expected.add_truncated(cut);
  expected.add_spans()->set_begin(1);
  expected.mutable_spans(0)->set_end(4);
  expected.add_spans()->set_begin(511);
  expected.mutable_spans(1)->set_end(511);
  expected.mutable_spans(1)->set_truncated(true);
  expected.set_prompt_name("query");
  AddSomeReport(3.5, &expected);
  ExpectParsesTo(EncodeEncodeResponse("id", std::move(result), 3.5), expected);
}

TEST_F(EncodeTest, SparseRowsComeWithoutATensor) {
  EncodeResult result;
  result.model = "splade";
  result.sparse = SparseRows{
      .indices = {3, 300, 70'000, 5}, .values = {0.5F, 1.25F, 2, 0.125F}, .lengths = {3, 0, 1}};
  result.lengths = {1, 1, 1};
  result.report = SomeReport();

  v1::EncodeResponse expected;
  expected.set_request_id("id");
  expected.set_model("splade");
  for (const int32_t index : {3, 300, 70'000, 5}) expected.mutable_sparse()->add_indices(index);
  for (const float value : {0.5F, 1.25F, 2.F, 0.125F}) expected.mutable_sparse()->add_values(value);
  for (const int64_t length : {3, 0, 1}) expected.mutable_sparse()->add_lengths(length);
  for (const int64_t length : {1, 1, 1}) expected.add_lengths(length);
  AddSomeReport(3.5, &expected);
  ExpectParsesTo(EncodeEncodeResponse("id", std::move(result), 3.5), expected);
}

// It counts for the bytes that there are, until the last of them is gone.
TEST_F(EncodeTest, AnAnswerOwnsItsShareOfTheBudgets) {
  struct Share final : AnswerShare {
    int64_t bytes = 0;
    void KeepOnly(int64_t kept) noexcept override { bytes = kept; }
  };
  for (const std::string& text : {std::string(), std::string("small"), std::string(100'000, 'x')}) {
    const auto share = std::make_shared<Share>();
    const grpc::Slice pieces[] = {grpc::Slice("first"), grpc::Slice(text)};
    std::vector<grpc::Slice> slices;
    {
      const grpc::ByteBuffer answer = Charged(grpc::ByteBuffer(pieces, 2), share);
      EXPECT_EQ(BytesOf(answer), "first" + text);
      EXPECT_EQ(share->bytes, 5 + std::ssize(text));
      ASSERT_TRUE(answer.Dump(&slices).ok());
    }
    EXPECT_EQ(share.use_count(), 2);
    slices.pop_back();
    EXPECT_EQ(share.use_count(), 1);
  }
  EXPECT_FALSE(Charged(grpc::ByteBuffer(), std::make_shared<Share>()).Valid());
}

TEST_F(EncodeTest, EveryKernelReportsItsParameters) {
  const auto reported = [](Kernel kernel) {
    AttentionResult result;
    result.report.kernel.kernel = std::move(kernel);
    v1::AttendResponse parsed;
    EXPECT_TRUE(parsed.ParseFromString(BytesOf(EncodeAttendResponse("", std::move(result), 0))));
    return parsed.kernel();
  };

  const v1::KernelReport clustered =
      reported(Clustered{.clusters = 1, .iterations = 2, .bits = 3, .hash_bias = false, .seed = 4});
  EXPECT_EQ(clustered.name(), v1::CLUSTERED);
  EXPECT_EQ(clustered.clustered().clusters(), 1);
  EXPECT_EQ(clustered.clustered().iterations(), 2);
  EXPECT_EQ(clustered.clustered().bits(), 3);
  EXPECT_TRUE(clustered.clustered().has_hash_bias());
  EXPECT_FALSE(clustered.clustered().hash_bias());
  EXPECT_EQ(clustered.clustered().seed(), 4u);

  ImprovedClustered parameters;
  parameters.topk = 7;
  const v1::KernelReport improved = reported(parameters);
  EXPECT_EQ(improved.name(), v1::IMPROVED_CLUSTERED);
  EXPECT_EQ(improved.improved_clustered().clusters(), 100);
  EXPECT_EQ(improved.improved_clustered().topk(), 7);
  EXPECT_EQ(improved.improved_clustered().clustering(), v1::HASH);
  EXPECT_EQ(improved.improved_clustered().rest_mass(), v1::ImprovedClustered::CENTROID);

  // Where nothing is hashed, nothing is said of hashes: the report can be sent as a request.
  parameters.clustering = Clustered::Clustering::kQuerySpace;
  parameters.rest_mass = ImprovedClustered::RestMass::kQuery;
  parameters.iterations = 2;
  const v1::ImprovedClustered options = reported(parameters).improved_clustered();
  EXPECT_EQ(options.clustering(), v1::QUERY_SPACE);
  EXPECT_EQ(options.rest_mass(), v1::ImprovedClustered::QUERY);
  EXPECT_EQ(options.iterations(), 2);
  EXPECT_EQ(options.bits(), 0);
  EXPECT_FALSE(options.has_hash_bias());

  Cast cast;
  cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
  cast.cluster_size = 9;
  cast.attention_function = Cast::AttentionFunction::kLaplace;
  cast.gate_temperature = Cast::GateTemperature::kNone;
  cast.head_clustering = Cast::HeadClustering::kPerHead;
  const v1::KernelReport as_cast = reported(cast);
  EXPECT_EQ(as_cast.name(), v1::CAST);
  EXPECT_EQ(as_cast.cast().clustering(), v1::Cast::SINGLE_ASSIGNMENT_TOP_K);
  EXPECT_EQ(as_cast.cast().cluster_size(), 9);
  EXPECT_EQ(as_cast.cast().attention_function(), v1::Cast::LAPLACE);
  EXPECT_EQ(as_cast.cast().gate_temperature(), v1::Cast::NONE);
  EXPECT_EQ(as_cast.cast().head_clustering(), v1::Cast::PER_HEAD);
  EXPECT_EQ(as_cast.cast().surrogates_case(), v1::Cast::SURROGATES_NOT_SET);
}

TEST_F(EncodeTest, TheOutputIsSentFromItsOwnMemory) {
  AttentionResult result;
  std::string raw;
  result.output = DrawTensor(DType::kFloat32, {1 << 16}, &raw);
  const auto* memory = reinterpret_cast<const uint8_t*>(result.output.data.data());
  {
    const grpc::ByteBuffer answer = EncodeAttendResponse("", std::move(result), 0);
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(answer.Dump(&slices).ok());
    ASSERT_EQ(slices.size(), 2u);
    EXPECT_EQ(slices[1].begin(), memory);
    EXPECT_EQ(slices[1].size(), size_t{4} << 16);
    EXPECT_GT(pool_->stats().in_use_bytes, 0);
  }
  EXPECT_EQ(pool_->stats().in_use_bytes, 0);
}

}  // namespace
}  // namespace castor::server
