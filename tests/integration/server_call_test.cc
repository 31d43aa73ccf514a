// Calls through a whole server over a real socket, with a scripted engine: answers, every status
// code, deadlines and cancellation.

#include <chrono>
#include <thread>

#include "castor/v1/model.grpc.pb.h"
#include "castor/v1/server.grpc.pb.h"
#include "engine/base/error.h"
#include "server/version.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

class ServerCallTest : public ServerTest {
 protected:
  void SetUp() override { StartServer(); }
};

TEST_F(ServerCallTest, AttendCarriesMegabytes) {
  const v1::AttendRequest request = AttendOf(500'000, "first");  // 12 MB in, 4 MB out
  const v1::AttendResponse response = Attend(request);
  EXPECT_EQ(response.request_id(), "first");
  EXPECT_TRUE(response.output().raw() == request.value().raw());
  EXPECT_EQ(response.kernel().device(), "fake");
  EXPECT_EQ(response.batch().requests(), 1);
}

TEST_F(ServerCallTest, EachReasonBecomesItsCodeWithDetails) {
  const struct {
    Reason reason;
    grpc::StatusCode code;
    const char* name;
    const char* pushback = "";
  } kCases[] = {
      {Reason::kInvalidField, grpc::INVALID_ARGUMENT, "INVALID_FIELD"},
      {Reason::kMalformedMessage, grpc::INVALID_ARGUMENT, "MALFORMED_MESSAGE"},
      {Reason::kNonFiniteInput, grpc::INVALID_ARGUMENT, "NON_FINITE_INPUT"},
      {Reason::kModelNotFound, grpc::NOT_FOUND, "MODEL_NOT_FOUND"},
      {Reason::kRegionNotFound, grpc::NOT_FOUND, "REGION_NOT_FOUND"},
      {Reason::kKernelNotAvailable, grpc::FAILED_PRECONDITION, "KERNEL_NOT_AVAILABLE"},
      {Reason::kModelControlOff, grpc::FAILED_PRECONDITION, "MODEL_CONTROL_OFF"},
      {Reason::kModelFailed, grpc::FAILED_PRECONDITION, "MODEL_FAILED"},
      {Reason::kRegionExists, grpc::FAILED_PRECONDITION, "REGION_EXISTS"},
      {Reason::kSharedMemoryOff, grpc::FAILED_PRECONDITION, "SHARED_MEMORY_OFF"},
      {Reason::kQueueFull, grpc::RESOURCE_EXHAUSTED, "QUEUE_FULL", "250"},
      {Reason::kTooLarge, grpc::RESOURCE_EXHAUSTED, "TOO_LARGE", "-1"},
      {Reason::kOutOfMemory, grpc::RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "1000"},
      {Reason::kTooManyRegions, grpc::RESOURCE_EXHAUSTED, "TOO_MANY_REGIONS"},
      {Reason::kDeadlineExceeded, grpc::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"},
      {Reason::kCancelled, grpc::CANCELLED, "CANCELLED"},
      {Reason::kDraining, grpc::UNAVAILABLE, "DRAINING"},
      {Reason::kModelLoading, grpc::UNAVAILABLE, "MODEL_LOADING"},
      {Reason::kNotServed, grpc::UNIMPLEMENTED, "NOT_SERVED"},
      {Reason::kUnauthenticated, grpc::UNAUTHENTICATED, "UNAUTHENTICATED"},
      {Reason::kPermissionDenied, grpc::PERMISSION_DENIED, "PERMISSION_DENIED"},
      {Reason::kInternal, grpc::INTERNAL, "INTERNAL"},
  };
  for (const bool at_admission : {true, false}) {
    for (const auto& expected : kCases) {
      SCOPED_TRACE(expected.name);
      const absl::Status error = expected.reason == Reason::kQueueFull
                                     ? QueueFull("full", milliseconds(250))
                                     : MakeError(expected.reason, "because");
      engine_->RefuseWith(at_admission ? error : absl::OkStatus());
      engine_->FailWith(at_admission ? absl::OkStatus() : error);
      AttendCall call;
      const grpc::Status status = call.Run(*attention_, AttendOf(1, "id-7"));
      EXPECT_EQ(status.error_code(), expected.code);
      const Details details = DetailsOf(status);
      EXPECT_EQ(details.info.reason(), expected.name);
      EXPECT_EQ(details.info.domain(), "castor");
      EXPECT_EQ(details.request.request_id(), "id-7");
      const auto& trailers = call.context.GetServerTrailingMetadata();
      const auto pushback = trailers.find("grpc-retry-pushback-ms");
      EXPECT_EQ(pushback == trailers.end()
                    ? ""
                    : std::string(pushback->second.data(), pushback->second.size()),
                expected.pushback);
    }
  }
}

TEST_F(ServerCallTest, MalformedBytesAreInvalidArgumentForEveryMethod) {
  const std::string garbage = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
  for (const char* method :
       {"/castor.v1.AttentionService/Attend", "/castor.v1.EncoderService/Encode",
        "/castor.v1.ModelService/ListModels", "/castor.v1.ModelService/GetModel",
        "/castor.v1.ModelService/LoadModel", "/castor.v1.ModelService/UnloadModel",
        "/castor.v1.ServerService/GetServerInfo",
        "/castor.v1.SharedMemoryService/RegisterSharedMemory",
        "/castor.v1.SharedMemoryService/UnregisterSharedMemory",
        "/castor.v1.SharedMemoryService/ListSharedMemory", "/grpc.health.v1.Health/Check"}) {
    SCOPED_TRACE(method);
    const grpc::Status status = CallRaw(method, garbage);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(DetailsOf(status).info.reason(), "MALFORMED_MESSAGE");
  }
}

TEST_F(ServerCallTest, ModelsAreListedAndFoundByName) {
  auto models = v1::ModelService::NewStub(channel_);
  grpc::ClientContext list_context;
  v1::ListModelsResponse list;
  ASSERT_TRUE(models->ListModels(&list_context, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 1);
  EXPECT_EQ(list.models(0).name(), "tiny");
  EXPECT_EQ(list.models(0).hidden_size(), 2);
  ASSERT_EQ(list.models(0).kernels_size(), 1);
  EXPECT_EQ(list.models(0).kernels(0), v1::VANILLA);

  EXPECT_EQ(DescribeModel("tiny").SerializeAsString(), list.models(0).SerializeAsString());

  grpc::ClientContext missing_context;
  v1::GetModelRequest request;
  request.set_name("other");
  v1::Model model;
  EXPECT_EQ(Outcome(models->GetModel(&missing_context, request, &model)),
            "NOT_FOUND MODEL_NOT_FOUND");
}

TEST_F(ServerCallTest, ModelControlIsOff) {
  auto models = v1::ModelService::NewStub(channel_);
  grpc::ClientContext load_context;
  v1::Model model;
  const std::string off = "FAILED_PRECONDITION MODEL_CONTROL_OFF";
  EXPECT_EQ(Outcome(models->LoadModel(&load_context, {}, &model)), off);
  grpc::ClientContext unload_context;
  v1::UnloadModelResponse response;
  EXPECT_EQ(Outcome(models->UnloadModel(&unload_context, {}, &response)), off);
}

TEST_F(ServerCallTest, ServerInfoTellsLimitsAndDefaults) {
  auto stub = v1::ServerService::NewStub(channel_);
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(stub->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.version(), server::Version());
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).name(), "fake");
  ASSERT_EQ(info.kernels_size(), 1);
  EXPECT_EQ(info.models(0), "tiny");
  EXPECT_EQ(info.limits().max_message_bytes(), TestOptions().max_message_bytes);
  EXPECT_EQ(info.limits().max_queued_requests(), EngineOptions().max_queued_requests);
  EXPECT_EQ(info.limits().max_queued_time_ms(), EngineOptions().max_queued_time / milliseconds(1));
  EXPECT_EQ(info.limits().max_request_time_ms(),
            EngineOptions().max_request_time / milliseconds(1));
  EXPECT_EQ(info.limits().max_shared_memory_regions(), 0) << "off";
  EXPECT_EQ(info.clustered_defaults().clusters(), 100);
  EXPECT_EQ(info.improved_clustered_defaults().topk(), 32);
  EXPECT_GT(info.uptime_seconds(), 0);
}

TEST_F(ServerCallTest, CancelledWhileQueuedOrRunningHarmsNoOther) {
  for (const bool running : {false, true}) {
    running ? engine_->HoldRunning() : engine_->Hold();
    AttendCall call;
    grpc::Status status;
    std::thread caller([&] { status = call.Run(*attention_, AttendOf(1)); });
    ASSERT_TRUE(running ? engine_->AwaitRunning() : engine_->AwaitWaiting(1));
    call.context.TryCancel();
    caller.join();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
    ASSERT_TRUE(running ? engine_->AwaitCancels(2) : engine_->AwaitWaiting(0));
    engine_->Release();
    EXPECT_TRUE(Try(AttendOf(1)).ok());
  }
}

TEST_F(ServerCallTest, DeadlineThatPassesCancelsTheRequest) {
  engine_->Hold();
  AttendCall call;
  call.context.set_deadline(system_clock::now() + milliseconds(50));
  EXPECT_EQ(call.Run(*attention_, AttendOf(1)).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(engine_->AwaitCancels(1));
  EXPECT_TRUE(engine_->AwaitWaiting(0));
  engine_->Release();
}

// Many calls are cancelled at random moments: each is answered, and nothing stays behind.
TEST_F(ServerCallTest, CancellingAtAnyMomentLeavesNothingBehind) {
  constexpr int kCalls = 200;
  for (int i = 0; i < kCalls; ++i) {
    AttendCall call;
    std::thread canceller([&] {
      for (int turn = 0; turn < i; ++turn) std::this_thread::yield();
      call.context.TryCancel();
    });
    const grpc::Status status = call.Run(*attention_, AttendOf(1));
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED)
        << status.error_message();
    canceller.join();
  }
  EXPECT_TRUE(server_->Drain());
  EXPECT_EQ(server_->calls_in_flight(), 0);
  EXPECT_EQ(engine_->answered(), engine_->admitted());
}

}  // namespace
}  // namespace castor::testing
