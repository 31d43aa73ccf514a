// Answers: protobuf must read back what was encoded. The tensor's memory is sent without a copy and
// given back afterwards.

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "engine/base/host_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/codec/attention_codec.h"
#include "server/codec/response.h"
#include "tests/support/seeded.h"

namespace castor::server {
namespace {

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

// Sizes around each step in the length of the length fields, and an output without rows.
TEST_F(EncodeTest, ProtobufReadsTheOutputBack) {
  for (int64_t tokens : {0, 1, 31, 32, 33, 4095, 4096, 4097, 300000}) {
    AttentionResult result;
    std::string raw;
    result.output = DrawTensor(DType::kBFloat16, {tokens, 1, 2}, &raw);
    result.report.timing.queue_us = 2;
    result.report.batch.tokens = 7;
    v1::AttendResponse parsed;
    ASSERT_TRUE(parsed.ParseFromString(BytesOf(EncodeAttendResponse("id", std::move(result), 5))));
    EXPECT_EQ(parsed.request_id(), "id");
    EXPECT_EQ(parsed.output().dtype(), v1::BFLOAT16);
    EXPECT_THAT(parsed.output().shape(), ::testing::ElementsAre(tokens, 1, 2));
    EXPECT_EQ(parsed.output().raw(), raw);
    EXPECT_EQ(parsed.timing().queue_us(), 2);
    EXPECT_EQ(parsed.timing().total_us(), 5);
    EXPECT_EQ(parsed.batch().tokens(), 7);
  }
}

// It counts for the bytes that there are, until the last of them is gone.
TEST_F(EncodeTest, AnAnswerOwnsItsShareOfTheBudgets) {
  struct Share final : AnswerShare {
    int64_t bytes = 0;
    void ResizeTo(int64_t kept) noexcept override { bytes = kept; }
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
    v1::KernelReport report = parsed.kernel();
    report.clear_measured_us();
    return report.ShortDebugString();
  };
  EXPECT_EQ(
      reported(Clustered{.clusters = 1, .iterations = 2, .bits = 3, .hash_bias = false, .seed = 4}),
      "name: CLUSTERED clustered { clusters: 1 iterations: 2 bits: 3 hash_bias: false seed: 4 "
      "clustering: HASH }");
  // Where nothing is hashed, nothing is said of hashes: the report can be sent as a request.
  ImprovedClustered parameters;
  parameters.clustering = Clustered::Clustering::kQuerySpace;
  parameters.rest_mass = ImprovedClustered::RestMass::kQuery;
  parameters.rest_groups = 3;
  parameters.iterations = 2;
  EXPECT_EQ(reported(parameters),
            "name: IMPROVED_CLUSTERED improved_clustered { clusters: 100 iterations: 2 topk: 32 "
            "clustering: QUERY_SPACE rest_mass: QUERY rest_groups: 3 }");
  parameters.rest_mass = ImprovedClustered::RestMass::kCentroid;
  parameters.rest_groups = 1;
  EXPECT_EQ(reported(parameters),
            "name: IMPROVED_CLUSTERED improved_clustered { clusters: 100 iterations: 2 topk: 32 "
            "clustering: QUERY_SPACE rest_mass: CENTROID }");
  Cast cast;
  cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
  cast.cluster_size = 9;
  cast.attention_function = Cast::AttentionFunction::kLaplace;
  cast.gate_temperature = Cast::GateTemperature::kNone;
  cast.head_clustering = Cast::HeadClustering::kPerHead;
  EXPECT_EQ(reported(cast),
            "name: CAST cast { clustering: SINGLE_ASSIGNMENT_TOP_K cluster_size: 9 "
            "attention_function: LAPLACE gate_temperature: NONE head_clustering: PER_HEAD }");
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
