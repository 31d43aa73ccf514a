// Tensors in shared memory through a whole server: the same answers as through the socket, every
// refusal, and regions that shrink or are unregistered while in use.

#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "castor/v1/model.grpc.pb.h"
#include "castor/v1/server.grpc.pb.h"
#include "castor/v1/shared_memory.grpc.pb.h"
#include "engine/engine.h"
#include "server/errors.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/seeded.h"
#include "tests/support/shared_object.h"

namespace castor::testing {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

server::ServerOptions WithSharedMemory(int64_t max_regions = 64) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.shared_memory = true;
  options.max_shared_memory_regions = max_regions;
  return options;
}

// Describes a call's status, such as "INVALID_ARGUMENT INVALID_FIELD query.shared_memory".
std::string Outcome(const grpc::Status& status) {
  if (status.ok()) return "OK";
  const Details details = DetailsOf(status);
  std::string text = std::string(server::NameOf(status.error_code())) + " " + details.info.reason();
  for (const auto& violation : details.bad_request.field_violations()) {
    text += " " + violation.field();
  }
  return text;
}

class SharedMemoryTest : public ServerTest {
 protected:
  void StartServer(server::ServerOptions options = WithSharedMemory()) {
    ServerTest::StartServer(std::move(options));
    regions_ = v1::SharedMemoryService::NewStub(channel_);
  }

  void StartReal(EngineOptions options = {}) {
    options.device = "cpu";
    options.cpu_threads = 2;
    options.models = {{"tiny", CASTOR_TINY_MODEL}};
    auto engine = CreateEngine(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    regions_.reset();  // it holds the channel
    ServerTest::StartServer(WithSharedMemory(), *std::move(engine));
    regions_ = v1::SharedMemoryService::NewStub(channel_);
  }

  grpc::Status Register(const std::string& name, const std::string& key, int64_t offset,
                        int64_t size) {
    v1::RegisterSharedMemoryRequest request;
    request.set_name(name);
    request.set_key(key);
    request.set_offset(offset);
    request.set_size(size);
    v1::RegisterSharedMemoryResponse response;
    grpc::ClientContext context;
    return regions_->RegisterSharedMemory(&context, request, &response);
  }

  grpc::Status Unregister(const std::string& name) {
    v1::UnregisterSharedMemoryRequest request;
    request.set_name(name);
    v1::UnregisterSharedMemoryResponse response;
    grpc::ClientContext context;
    return regions_->UnregisterSharedMemory(&context, request, &response);
  }

  grpc::Status List(v1::ListSharedMemoryResponse* response) {
    grpc::ClientContext context;
    return regions_->ListSharedMemory(&context, {}, response);
  }

  std::string AttendOutcome(const v1::AttendRequest& request) {
    AttendCall call;
    return Outcome(call.Run(*attention_, request));
  }

  // The answer of a request that must succeed.
  v1::AttendResponse Attend(const v1::AttendRequest& request) {
    AttendCall call;
    const grpc::Status status = call.Run(*attention_, request);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return call.response;
  }

  std::unique_ptr<v1::SharedMemoryService::Stub> regions_;
};

void SetRef(const std::string& region, int64_t offset, int64_t size, v1::SharedMemoryRef* ref) {
  ref->set_region(region);
  ref->set_offset(offset);
  ref->set_size(size);
}

// An object registered as "r" from its byte 24 on. Tensors are placed in it one after another.
class Region {
 public:
  static constexpr int64_t kOffset = 24;

  explicit Region(int64_t size) : object_(kOffset + size) {}

  const SharedObject& object() const { return object_; }

  // Moves the tensor's elements into the region, after those already there.
  void Take(v1::Tensor* tensor) {
    const std::string raw = tensor->raw();
    object_.Write(kOffset + used_, raw);
    SetRef("r", used_, static_cast<int64_t>(raw.size()), tensor->mutable_shared_memory());
    used_ += static_cast<int64_t>(raw.size());
  }

  // Moves all tensors of the request and reserves a range for the output.
  void Take(v1::AttendRequest* request, int64_t output_bytes) {
    Take(request->mutable_query());
    Take(request->mutable_key());
    Take(request->mutable_value());
    if (request->cast().has_gate()) Take(request->mutable_cast()->mutable_gate());
    if (request->cast().has_surrogate_tokens()) {
      Take(request->mutable_cast()->mutable_surrogate_tokens());
    }
    SetRef("r", used_, output_bytes, request->mutable_output());
    used_ += output_bytes;
  }

  std::string Read(const v1::SharedMemoryRef& ref) const {
    return object_.Read(kOffset + ref.offset(), ref.size());
  }

 private:
  const SharedObject object_;
  int64_t used_ = 0;
};

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
  EXPECT_EQ(Outcome(Register("r", "/castor-no-such", 0, 1)), "INVALID_ARGUMENT INVALID_FIELD key");
  EXPECT_EQ(Outcome(Register("r", "/../etc/passwd", 0, 1)), "INVALID_ARGUMENT INVALID_FIELD key");
  EXPECT_EQ(Outcome(Register("r", object.key(), -1, 1)), "INVALID_ARGUMENT INVALID_FIELD offset");
  for (const int64_t size : {kMin, int64_t{0}, int64_t{101}, kMax}) {
    EXPECT_EQ(Outcome(Register("r", object.key(), 0, size)), "INVALID_ARGUMENT INVALID_FIELD size");
  }
  ASSERT_TRUE(Register("r", object.key(), 0, 100).ok());
  EXPECT_EQ(Outcome(Register("r", object.key(), 0, 50)), "FAILED_PRECONDITION REGION_EXISTS");
  ASSERT_TRUE(Register("s", object.key(), 0, 100).ok());
  EXPECT_EQ(Outcome(Register("t", object.key(), 0, 100)), "RESOURCE_EXHAUSTED TOO_MANY_REGIONS");
  EXPECT_EQ(Metric("castor_shared_memory_regions"), 2);
  EXPECT_EQ(Metric("castor_requests_total{code=\"RESOURCE_EXHAUSTED\",kernel=\"none\",method="
                   "\"register_shared_memory\"}"),
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
  std::mt19937 random(FreshSeed());
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
      for (v1::Tensor* tensor :
           {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
        draw(dtype, {kTokens, kHeads, kDim}, tensor);
      }
      for (const int64_t length : {100, 1, 49}) request.add_query_lengths(length);
      request.set_check_finite(true);
      if (kernel == 1) request.mutable_clustered()->set_clusters(20);
      if (kernel == 2) request.mutable_improved_clustered()->set_topk(7);
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
      ASSERT_TRUE(Unregister("r").ok());
    }
  }
}

TEST_F(SharedMemoryTest, EmbeddingsAreReadFromIt) {
  StartReal();
  grpc::ClientContext describe;
  v1::Model model;
  v1::GetModelRequest name;
  name.set_name("tiny");
  ASSERT_TRUE(v1::ModelService::NewStub(channel_)->GetModel(&describe, name, &model).ok());
  v1::EncodeRequest request;
  v1::Tensor* values = request.mutable_embeddings()->mutable_values();
  values->set_dtype(v1::FLOAT32);
  values->add_shape(5);
  values->add_shape(model.hidden_size());
  std::vector<float> elements(static_cast<size_t>(5 * model.hidden_size()));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = 0.01F * static_cast<float>(i % 37);
  values->set_raw(elements.data(), elements.size() * sizeof(float));
  const auto encode = [&] {
    grpc::ClientContext context;
    v1::EncodeResponse response;
    const grpc::Status status = encoder_->Encode(&context, request, &response);
    return status.ok() ? response.output().raw() : Outcome(status);
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

// ---- references that cannot be followed --------------------------------------------------------

TEST_F(SharedMemoryTest, ReferencesOutsideOfARegionAreRefusedByField) {
  StartReal();
  Region region(100);
  ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 100).ok());
  const auto key_at = [&](const std::string& name, int64_t offset, int64_t size) {
    v1::AttendRequest request = AttendOf(3);  // 24 bytes each
    SetRef(name, offset, size, request.mutable_key()->mutable_shared_memory());
    return AttendOutcome(request);
  };
  const std::string invalid = "INVALID_ARGUMENT INVALID_FIELD key.shared_memory";
  EXPECT_EQ(key_at("r", 76, 24), "OK");
  EXPECT_EQ(key_at("x", 0, 24), "NOT_FOUND REGION_NOT_FOUND key.shared_memory.region");
  EXPECT_EQ(key_at("r", 77, 24), invalid + ".size");
  for (const int64_t offset : {int64_t{101}, kMax, kMax - 23, int64_t{-1}, kMin}) {
    EXPECT_EQ(key_at("r", offset, 24), invalid + ".offset") << offset;
  }
  for (const int64_t size : {kMax, kMax - 1, int64_t{-24}, kMin}) {
    EXPECT_EQ(key_at("r", 1, size), invalid + ".size") << size;
  }
  // Within the region, but not the size that the shape needs.
  for (const int64_t size : {0, 23, 25}) EXPECT_EQ(key_at("r", 0, size), invalid) << size;

  const auto output_at = [&](const std::string& name, int64_t offset, int64_t size) {
    v1::AttendRequest request = AttendOf(3);
    SetRef(name, offset, size, request.mutable_output());
    return AttendOutcome(request);
  };
  EXPECT_EQ(output_at("r", 76, 24), "OK");
  EXPECT_EQ(output_at("x", 0, 24), "NOT_FOUND REGION_NOT_FOUND output.region");
  EXPECT_EQ(output_at("r", kMax, 24), "INVALID_ARGUMENT INVALID_FIELD output.offset");
  EXPECT_EQ(output_at("r", 90, 24), "INVALID_ARGUMENT INVALID_FIELD output.size");
  EXPECT_EQ(output_at("r", 0, 23), "INVALID_ARGUMENT INVALID_FIELD output.size");
}

TEST_F(SharedMemoryTest, ARegionThatWasCutSpoilsOnlyItsRequests) {
  StartReal();
  v1::AttendRequest request = AttendOf(3);
  const std::string expected = Attend(request).output().raw();
  Region region(4096);
  ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 4096).ok());
  region.Take(&request, 24);
  EXPECT_EQ(AttendOutcome(request), "OK");
  // Cut to the middle of each of the four ranges, then to nothing.
  const int64_t from = Region::kOffset;
  const std::string invalid = "INVALID_ARGUMENT INVALID_FIELD ";
  for (const auto& [left, field] :
       {std::pair{from + 80, "output"}, std::pair{from + 60, "value.shared_memory"},
        std::pair{from + 30, "key.shared_memory"}, std::pair{from + 3, "query.shared_memory"},
        std::pair{int64_t{0}, "query.shared_memory"}}) {
    region.object().Cut(left);
    EXPECT_EQ(AttendOutcome(request), invalid + field);
    EXPECT_EQ(region.object().size(), left) << "an answer must not make it longer";
  }
  EXPECT_EQ(Attend(AttendOf(3)).output().raw(), expected);
  EXPECT_TRUE(AwaitNoBytes());
}

TEST_F(SharedMemoryTest, ARegionCutWhileACallRunsIsAnErrorOfThatCall) {
  StartServer();
  v1::AttendRequest request = AttendOf(3);
  Region region(4096);
  ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 4096).ok());
  region.Take(&request, 24);
  engine_->HoldRunning();
  std::string outcome;
  std::thread caller([&] { outcome = AttendOutcome(request); });
  ASSERT_TRUE(engine_->AwaitRunning());
  region.object().Cut(0);
  engine_->Release();
  caller.join();
  EXPECT_EQ(outcome, "INVALID_ARGUMENT INVALID_FIELD output");
  EXPECT_EQ(region.object().size(), 0);
  EXPECT_EQ(AttendOutcome(AttendOf(3)), "OK");
}

TEST_F(SharedMemoryTest, ARegionForgottenWhileACallRunsStillTakesItsAnswer) {
  StartServer();
  v1::AttendRequest request = AttendOf(3);
  const std::string expected = request.value().raw();
  Region region(4096);
  ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 4096).ok());
  region.Take(&request, 24);
  engine_->HoldRunning();
  std::string outcome;
  std::thread caller([&] { outcome = AttendOutcome(request); });
  ASSERT_TRUE(engine_->AwaitRunning());
  // Another object takes its name and its place.
  const SharedObject other(4096);
  ASSERT_TRUE(Unregister("r").ok());
  ASSERT_TRUE(Register("r", other.key(), 0, 4096).ok());
  engine_->Release();
  caller.join();
  EXPECT_EQ(outcome, "OK");
  EXPECT_EQ(region.Read(request.output()), expected);
  EXPECT_EQ(other.Read(0, 4096), std::string(4096, '\0'));
  ASSERT_TRUE(Unregister("r").ok());
  EXPECT_EQ(AttendOutcome(request), "NOT_FOUND REGION_NOT_FOUND query.shared_memory.region");
}

TEST_F(SharedMemoryTest, NothingIsWrittenForACallThatWasCancelled) {
  StartServer();
  v1::AttendRequest request = AttendOf(3);
  Region region(4096);
  ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 4096).ok());
  region.Take(&request, 24);
  engine_->HoldRunning();
  AttendCall call;
  std::thread caller([&] { call.Run(*attention_, request); });
  ASSERT_TRUE(engine_->AwaitRunning());
  call.context.TryCancel();
  caller.join();
  ASSERT_TRUE(engine_->AwaitCancels(1));
  engine_->Release();
  ASSERT_TRUE(AwaitNoCalls());
  EXPECT_EQ(region.Read(request.output()), std::string(24, '\0'));
}

// Sizes that cost nothing to declare: a sparse object of 2^40 bytes, and tensors that claim them.
TEST_F(SharedMemoryTest, HugeObjectsAllocateNothing) {
  StartReal();
  constexpr int64_t kHuge = int64_t{1} << 40;
  const SharedObject object(kHuge);
  ASSERT_TRUE(Register("r", object.key(), 0, kHuge).ok());
  v1::AttendRequest request = AttendOf(3);
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    tensor->set_shape(0, kHuge / 8);
    SetRef("r", 0, kHuge, tensor->mutable_shared_memory());
  }
  const int64_t before = ResidentBytes();
  for (int i = 0; i < 100; ++i) {
    const std::string outcome = AttendOutcome(request);
    EXPECT_TRUE(outcome.starts_with("RESOURCE_EXHAUSTED TOO_LARGE") ||
                outcome.starts_with("INVALID_ARGUMENT"))
        << outcome;
  }
  EXPECT_LT(ResidentBytes(), before + (64 << 20));
}

// 2^20 clusters of all tokens but one, values of 2^22: the bytes for one head are a multiple of
// 2^64.
v1::AttendRequest AttendWithALayoutThatWraps() {
  constexpr int64_t kTokens = int64_t{1} << 20;
  constexpr int64_t kDim = int64_t{1} << 22;
  v1::AttendRequest request;
  const auto set = [](std::initializer_list<int64_t> shape, v1::Tensor* tensor) {
    int64_t bytes = 4;
    for (const int64_t dimension : shape) {
      tensor->add_shape(dimension);
      bytes *= dimension;
    }
    tensor->set_dtype(v1::FLOAT32);
    SetRef("r", 0, bytes, tensor->mutable_shared_memory());
  };
  set({kTokens, 1, 1}, request.mutable_query());
  set({kTokens, 1, 1}, request.mutable_key());
  set({kTokens, 1, kDim}, request.mutable_value());
  v1::Cast& cast = *request.mutable_cast();
  set({kTokens, 1, 1}, cast.mutable_surrogate_tokens());
  set({kTokens}, cast.mutable_gate());
  cast.set_cluster_size(kTokens - 1);
  return request;
}

TEST_F(SharedMemoryTest, ALayoutThatWouldWrapIsTooLarge) {
  // The second budget admits every tensor, so there it is the layout that is too large.
  for (const int64_t budget : {EngineOptions().max_queued_bytes, kMax}) {
    EngineOptions options;
    options.max_queued_bytes = budget;
    StartReal(options);
    const SharedObject object(int64_t{1} << 44);
    ASSERT_TRUE(Register("r", object.key(), 0, object.size()).ok());
    v1::AttendRequest request = AttendWithALayoutThatWraps();
    for (const auto heads : {v1::Cast::SHARED, v1::Cast::PER_HEAD}) {
      request.mutable_cast()->set_head_clustering(heads);
      EXPECT_EQ(AttendOutcome(request), "RESOURCE_EXHAUSTED TOO_LARGE") << budget;
    }
    EXPECT_EQ(AttendOutcome(AttendOf(3)), "OK");
  }
}

}  // namespace
}  // namespace castor::testing
