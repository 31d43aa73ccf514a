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

class AuthorizeTest : public ServerTest {
 protected:
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
    auto engine = std::make_unique<FakeEngine>();
    FakeEngine* const fake = engine.get();
    StartServer(TestOptions(), std::move(engine), std::make_unique<Closed>(reason));
    for (const std::string& method : AllMethods()) {
      SCOPED_TRACE(method);
      const grpc::Status status = CallWithoutMessage(method);
      EXPECT_EQ(status.error_code(), code) << status.error_message();
      EXPECT_EQ(status.error_message(), "not you, not " + method);
      EXPECT_EQ(DetailsOf(status).info.reason(), NameOf(reason));
    }
    EXPECT_EQ(fake->admitted(), 0);
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

}  // namespace
}  // namespace castor::testing
