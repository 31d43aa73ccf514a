// Every method of every service in the contract must ask the authorizer before it reads anything.
// The methods are found through their descriptors, so new ones are covered too.

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/mutex.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor_database.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {
namespace {

using server::Caller;

// "/package.Service/Method" for each method in castor's own files and in those of gRPC's services
// and of tei.v1.
std::vector<std::string> AllMethods() {
  std::vector<std::string> files;
  google::protobuf::DescriptorPool::internal_generated_database()->FindAllFileNames(&files);
  std::vector<std::string> methods;
  for (const std::string& name : files) {
    const auto in = [&](const char* folder) { return name.starts_with(folder); };
    if (!in("castor/") && !in("grpc/") && !in("tei/")) continue;
    const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(name);
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        methods.push_back("/" + service->full_name() + "/" + service->method(j)->name());
      }
    }
  }
  return methods;
}

// Refuses everyone, for one reason.
class Closed final : public server::Authorizer {
 public:
  explicit Closed(Reason reason) : reason_(reason) {}
  absl::StatusOr<Caller> Authorize(const server::Call&, std::string_view method) const override {
    return MakeError(reason_, "not you, not " + std::string(method));
  }

 private:
  const Reason reason_;
};

// Believes whatever name the caller gives.
class Gullible final : public server::Authorizer {
 public:
  absl::StatusOr<Caller> Authorize(const server::Call& call, std::string_view) const override {
    const std::string caller(call.header("x-name"));
    if (caller.empty()) return MakeError(Reason::kUnauthenticated, "who is there?");
    return Caller{caller, "tenant of " + caller};
  }
};

class AuthorizeTest : public ServerTest {
 protected:
  void StartWith(std::unique_ptr<server::Authorizer> authorizer) {
    auto engine = std::make_unique<FakeEngine>();
    FakeEngine* fake = engine.get();
    StartServer(TestOptions(), std::move(engine), std::move(authorizer));
    engine_ = fake;
  }

  // Begins a call, sends no message, and returns the call's status.
  grpc::Status CallWithoutMessage(const std::string& method) const {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Patience(std::chrono::seconds(20)));
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, method, &queue);
    int tag = 0;
    grpc::Status status;
    void* done = nullptr;
    bool ok = false;
    call->StartCall(&tag);
    EXPECT_TRUE(queue.Next(&done, &ok));
    call->Finish(&status, &tag);
    EXPECT_TRUE(queue.Next(&done, &ok));
    return status;
  }

  void ExpectClosed(Reason reason, grpc::StatusCode code) {
    StartWith(std::make_unique<Closed>(reason));
    for (const std::string& method : AllMethods()) {
      SCOPED_TRACE(method);
      const grpc::Status status = CallWithoutMessage(method);
      EXPECT_EQ(status.error_code(), code) << status.error_message();
      EXPECT_EQ(status.error_message(), "not you, not " + method);
      EXPECT_EQ(DetailsOf(status).info.reason(), NameOf(reason));
    }
    EXPECT_EQ(engine_->admitted(), 0);
    EXPECT_TRUE(AwaitNoCalls());
  }
};

TEST_F(AuthorizeTest, KnowsTheMethods) {
  const std::vector<std::string> methods = AllMethods();
  for (const char* method :
       {"/castor.v1.AttentionService/Attend", "/castor.v1.AttentionService/AttendStream",
        "/castor.v1.EncoderService/Encode", "/castor.v1.EncoderService/EncodeStream",
        "/castor.v1.EncoderService/Rerank", "/castor.v1.EncoderService/Tokenize",
        "/castor.v1.EncoderService/Detokenize", "/castor.v1.SharedMemoryService/ListSharedMemory",
        "/castor.v1.ServerService/GetServerInfo", "/castor.v1.ModelService/LoadModel",
        "/grpc.health.v1.Health/Watch", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/tei.v1.Rerank/RerankStream"}) {
    EXPECT_EQ(std::count(methods.begin(), methods.end(), method), 1) << method;
  }
}

TEST_F(AuthorizeTest, EveryMethodRefusesWhoIsNotKnownBeforeItReads) {
  ExpectClosed(Reason::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(AuthorizeTest, EveryMethodRefusesWhoMayNotBeforeItReads) {
  ExpectClosed(Reason::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(AuthorizeTest, TheTenantReachesTheEngine) {
  StartWith(std::make_unique<Gullible>());
  AttendCall named;
  named.context.AddMetadata("x-name", "beaver");
  ASSERT_TRUE(named.Run(*attention_, AttendOf(1)).ok());
  EXPECT_EQ(engine_->last_call()->tenant, "tenant of beaver");
  AttendCall nameless;
  const grpc::Status status = nameless.Run(*attention_, AttendOf(1));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(engine_->admitted(), 1);
}

TEST_F(AuthorizeTest, EverybodyMayDoEverythingUnlessToldOtherwise) {
  ServerTest::StartServer();
  AttendCall call;
  ASSERT_TRUE(call.Run(*attention_, AttendOf(1)).ok());
  EXPECT_EQ(engine_->last_call()->tenant, "");
}

}  // namespace
}  // namespace castor::testing
