// Tensors in shared memory through a whole server: regions and their rules, and the same answers as
// through the socket.

#include <random>
#include <string>
#include <vector>

#include "castor/v1/server.grpc.pb.h"
#include "tests/integration/shared_memory/fixture.h"
#include "tests/support/seeded.h"

namespace castor::testing {
namespace {

// ---- registering -------------------------------------------------------------------------------

TEST_F(SharedMemoryTest, RegionsAreRegisteredListedAndForgotten) {
  StartServer();
  const SharedObject first(100), second(200);
  ASSERT_TRUE(Register("b", first.key(), 10, 90).ok());
  ASSERT_TRUE(Register("a", second.key(), 0, 200).ok());
  v1::ListSharedMemoryResponse list;
  ASSERT_TRUE(List(&list).ok());
  ASSERT_EQ(list.regions_size(), 2);
  EXPECT_EQ(list.regions(0).name(), "a");
  EXPECT_EQ(list.regions(1).name(), "b");
  EXPECT_EQ(list.regions(1).key(), first.key());
  EXPECT_EQ(list.regions(1).offset(), 10);
  EXPECT_EQ(list.regions(1).size(), 90);
  EXPECT_EQ(Metric("castor_shared_memory_regions"), 2);

  EXPECT_TRUE(Unregister("b").ok());
  EXPECT_EQ(Outcome(Unregister("b")), "NOT_FOUND REGION_NOT_FOUND");
  EXPECT_EQ(Outcome(Unregister("")), "NOT_FOUND REGION_NOT_FOUND");
  ASSERT_TRUE(List(&list).ok());
  EXPECT_EQ(list.regions_size(), 1);
  EXPECT_EQ(Metric("castor_shared_memory_regions"), 1);
}

TEST_F(SharedMemoryTest, WhatCannotBeARegionIsRefusedByField) {
  StartServer(WithSharedMemory(2));
  const SharedObject object(100);
  EXPECT_EQ(Outcome(Register("", object.key(), 0, 100)), "INVALID_ARGUMENT INVALID_FIELD name");
  ASSERT_TRUE(Register("r", object.key(), 0, 100).ok());
  EXPECT_EQ(Outcome(Register("r", object.key(), 0, 50)), "FAILED_PRECONDITION REGION_EXISTS");
  ASSERT_TRUE(Register("s", object.key(), 0, 100).ok());
  EXPECT_EQ(Outcome(Register("t", object.key(), 0, 100)), "RESOURCE_EXHAUSTED TOO_MANY_REGIONS");
  EXPECT_EQ(Metric("castor_shared_memory_regions"), 2);
  EXPECT_EQ(Metric("castor_requests_total{code=\"RESOURCE_EXHAUSTED\",kernel=\"none\",method="
                   "\"other\"}"),
            1);
}

TEST_F(SharedMemoryTest, WhereItIsOffEverythingNamesTheFlag) {
  StartServer(TestOptions());
  const SharedObject object(100);
  const std::string off = "FAILED_PRECONDITION SHARED_MEMORY_OFF";
  v1::ListSharedMemoryResponse list;
  EXPECT_EQ(Outcome(Register("r", object.key(), 0, 100)), off);
  EXPECT_EQ(Outcome(Unregister("r")), off);
  EXPECT_EQ(Outcome(List(&list)), off);
  EXPECT_NE(List(&list).error_message().find("--shared-memory"), std::string::npos);

  v1::AttendRequest request = AttendOf(1);
  SetRef("r", 0, 8, request.mutable_key()->mutable_shared_memory());
  EXPECT_EQ(AttendOutcome(request), off + " key.shared_memory");
  request = AttendOf(1);
  SetRef("r", 0, 8, request.mutable_output());
  EXPECT_EQ(AttendOutcome(request), off + " output");
}

TEST_F(SharedMemoryTest, ServerInfoTellsThatItIsOn) {
  StartServer(WithSharedMemory(7));
  auto stub = v1::ServerService::NewStub(channel_);
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(stub->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.limits().max_shared_memory_regions(), 7);
}

// ---- answers -----------------------------------------------------------------------------------

TEST_F(SharedMemoryTest, TheOutputIsWrittenAndNamedInTheAnswer) {
  StartServer();
  v1::AttendRequest request = AttendOf(3);
  const std::string expected = request.value().raw();
  Region region(1000);
  ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 1000).ok());
  region.Take(&request, 24);
  const v1::AttendResponse response = Attend(request);
  const v1::Tensor& output = response.output();
  EXPECT_FALSE(output.has_raw());
  EXPECT_EQ(output.dtype(), v1::FLOAT32);
  EXPECT_EQ(output.shape_size(), 3);
  EXPECT_EQ(output.shared_memory().SerializeAsString(), request.output().SerializeAsString());
  EXPECT_EQ(region.Read(output.shared_memory()), expected);
  EXPECT_EQ(Metric("castor_shared_memory_read_bytes_total"), 72);
  EXPECT_EQ(Metric("castor_shared_memory_written_bytes_total"), 24);
  EXPECT_LT(Metric("castor_sent_bytes_total{method=\"attend\"}"), 200);

  // Either direction may go through the socket.
  request.clear_output();
  EXPECT_EQ(Attend(request).output().raw(), expected);
  v1::AttendRequest inlined = AttendOf(3);
  SetRef("r", 0, 24, inlined.mutable_output());
  EXPECT_TRUE(Attend(inlined).output().has_shared_memory());
  EXPECT_EQ(region.Read(inlined.output()), expected);
}

// The real engine, every kernel and type: answers through shared memory equal those through the
// socket byte for byte.
TEST_F(SharedMemoryTest, EveryKernelAnswersTheSameBytes) {
  StartReal();
  constexpr int64_t kTokens = 150, kHeads = 3, kDim = 32, kSurrogates = 5;
  std::mt19937 random(TestSeed());
  std::normal_distribution<float> normal;
  const auto draw = [&](v1::DataType dtype, std::vector<int64_t> shape, v1::Tensor* tensor) {
    int64_t elements = 1;
    tensor->set_dtype(dtype);
    for (const int64_t dimension : shape) {
      tensor->add_shape(dimension);
      elements *= dimension;
    }
    std::string raw;
    for (int64_t i = 0; i < elements; ++i) {
      const float value = normal(random);
      // bfloat16 is the upper half of a float.
      const size_t from = dtype == v1::BFLOAT16 ? 2 : 0;
      raw.append(reinterpret_cast<const char*>(&value) + from, sizeof(value) - from);
    }
    tensor->set_raw(raw);
  };
  for (const v1::DataType dtype : {v1::FLOAT32, v1::BFLOAT16}) {
    for (int kernel = 0; kernel < 4; ++kernel) {
      v1::AttendRequest request;
      draw(dtype, {kTokens, kHeads, kDim}, request.mutable_query());
      if (dtype == v1::FLOAT32) {
        draw(dtype, {kTokens, kHeads, kDim}, request.mutable_key());
        draw(dtype, {kTokens, kHeads, kDim}, request.mutable_value());
      } else {
        draw(dtype, {kTokens, 1, kDim}, request.mutable_key());
        request.set_value_is_key_prefix(true);
        request.set_value_dim(kDim - 5);
      }
      for (const int64_t length : {100, 1, 49}) request.add_query_lengths(length);
      request.set_check_finite(true);
      if (kernel == 1) request.mutable_clustered()->set_clusters(20);
      if (kernel == 2) request.mutable_improved_clustered()->set_topk(7);
      request.set_return_log_sum_exp(kernel != 3);
      if (kernel != 3) draw(v1::FLOAT32, {kTokens}, request.mutable_key_bias());
      if (kernel == 0) {
        draw(v1::FLOAT32, {kHeads, 9}, request.mutable_positions()->mutable_relative_bias());
      }
      if (kernel == 3) {
        draw(v1::FLOAT32, {kTokens}, request.mutable_cast()->mutable_gate());
        draw(dtype, {kSurrogates, kHeads, kDim},
             request.mutable_cast()->mutable_surrogate_tokens());
      }
      SCOPED_TRACE(v1::DataType_Name(dtype) + " " + std::to_string(kernel));
      const v1::AttendResponse expected = Attend(request);
      ASSERT_FALSE(expected.output().raw().empty());

      Region region(1 << 20);
      ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 1 << 20).ok());
      region.Take(&request, static_cast<int64_t>(expected.output().raw().size()));
      const v1::AttendResponse response = Attend(request);
      EXPECT_EQ(response.kernel().name(), expected.kernel().name());
      EXPECT_EQ(region.Read(response.output().shared_memory()), expected.output().raw());
      EXPECT_EQ(expected.log_sum_exp().raw().size(), kernel == 3 ? 0U : 4 * kTokens * kHeads);
      EXPECT_EQ(response.log_sum_exp().raw(), expected.log_sum_exp().raw());
      ASSERT_TRUE(Unregister("r").ok());
    }
  }
}

TEST_F(SharedMemoryTest, EmbeddingsAreReadFromIt) {
  StartReal();
  const v1::Model model = DescribeModel("tiny");
  v1::EncodeRequest request;
  v1::Tensor* values = request.mutable_embeddings()->mutable_values();
  values->set_dtype(v1::FLOAT32);
  values->add_shape(5);
  values->add_shape(model.hidden_size());
  std::vector<float> elements(static_cast<size_t>(5 * model.hidden_size()));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = 0.01F * static_cast<float>(i % 37);
  values->set_raw(elements.data(), elements.size() * sizeof(float));
  const auto encode = [&] {
    const grpc::Status status = Try(request);
    return status.ok() ? Encode(request).output().raw() : Outcome(status);
  };
  const std::string expected = encode();
  Region region(1 << 16);
  ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 1 << 16).ok());
  region.Take(values);
  EXPECT_EQ(encode(), expected);
  region.object().Cut(100);
  EXPECT_EQ(encode(), "INVALID_ARGUMENT INVALID_FIELD embeddings.values.shared_memory");
  SetRef("s", 0, 1, values->mutable_shared_memory());
  EXPECT_EQ(encode(), "NOT_FOUND REGION_NOT_FOUND embeddings.values.shared_memory.region");
}

}  // namespace
}  // namespace castor::testing
