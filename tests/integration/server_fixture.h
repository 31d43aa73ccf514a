// A whole server on ports chosen by the system, over a FakeEngine or the real one, and helpers for
// calls to it.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "castor/v1/attention.grpc.pb.h"
#include "castor/v1/encoder.grpc.pb.h"
#include "castor/v1/model.grpc.pb.h"
#include "engine/base/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/server.h"
#include "tests/support/fake_engine.h"

namespace castor::testing {

// Loopback, a port picked by the system, no metrics endpoint.
server::ServerOptions TestOptions();
server::ServerOptions TestOptionsWithMetrics();

// The unpacked details of an error.
struct Details {
  google::rpc::ErrorInfo info;
  google::rpc::BadRequest bad_request;
  std::optional<google::rpc::RetryInfo> retry;
  google::rpc::RequestInfo request;
};
Details DetailsOf(const grpc::Status& status);

// Describes a call's status, such as "INVALID_ARGUMENT INVALID_FIELD query.shared_memory".
std::string Outcome(const grpc::Status& status);

// One packed sequence: query, key and value of shape [tokens, 1, 2], value counting up.
v1::AttendRequest AttendOf(int64_t tokens, const std::string& request_id = "");
v1::EncodeRequest EncodeOf(const std::vector<std::string>& texts);

// The elements of a FLOAT32 tensor.
std::vector<float> FloatsOf(const v1::Tensor& tensor);

// One call on a new context, which the test can use for deadlines, cancellation and trailers.
struct AttendCall {
  grpc::ClientContext context;
  v1::AttendResponse response;

  grpc::Status Run(v1::AttentionService::Stub& stub, const v1::AttendRequest& request) {
    return stub.Attend(&context, request, &response);
  }
};

// Refuses everyone, for one reason.
class Closed final : public server::Authorizer {
 public:
  explicit Closed(Reason reason = Reason::kUnauthenticated) : reason_(reason) {}
  absl::StatusOr<server::Caller> Authorize(const server::Call&,
                                           std::string_view method) const override {
    return MakeError(reason_, "not you, not " + std::string(method));
  }

 private:
  const Reason reason_;
};

class ServerTest : public ::testing::Test {
 protected:
  // Starts a server over a FakeEngine, or over `engine`.
  void StartServer(server::ServerOptions options = TestOptions());
  void StartServer(
      server::ServerOptions options, std::unique_ptr<Engine> engine,
      std::unique_ptr<server::Authorizer> authorizer = std::make_unique<server::OpenToAll>());

  // Starts one over the real engine on the CPU. Its kernels are not measured first, so that a start
  // is quick and predictions are the same on every machine.
  void StartReal(std::vector<ModelSource> models = {},
                 server::ServerOptions options = TestOptions(), EngineOptions engine = {});

  // Ends the server that StartServer started, if any. StartServer does it first: gRPC's threads
  // must not outlive one server and meet the next, which ThreadSanitizer, blind to gRPC's locks,
  // would report as races.
  void StopServer();

  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }

  // A channel with its own connection; by default, channels of one process share connections.
  std::shared_ptr<grpc::Channel> NewChannel() const { return NewChannelTo(server_->port()); }
  static std::shared_ptr<grpc::Channel> NewChannelTo(int port);

  // Has an Attend answered.
  void ExpectAGoodAnswer() const;
  // The answer to a request that must succeed.
  v1::AttendResponse Attend(const v1::AttendRequest& request) const;
  v1::EncodeResponse Encode(const v1::EncodeRequest& request) const;
  v1::RerankResponse Rerank(const v1::RerankRequest& request) const;
  // How a request ends that need not succeed.
  grpc::Status Try(const v1::AttendRequest& request) const;
  grpc::Status Try(const v1::EncodeRequest& request) const;
  grpc::Status Try(const v1::RerankRequest& request) const;

  // What the server says of a model that it has.
  v1::Model DescribeModel(const std::string& model) const;

  // Sends `bytes` as the message of `method`, such as "/castor.v1.AttentionService/Attend".
  grpc::Status CallRaw(const std::string& method, const std::string& bytes,
                       std::string* answer = nullptr) const;

  // Waits until the server has no call in flight; false after 20 s, or longer under a sanitizer. A
  // client learns of its own cancellation before the server does.
  bool AwaitNoCalls() const;
  // The same, and until the engine holds no bytes: gRPC may keep an answer for a moment after its
  // call has been counted out.
  bool AwaitNoBytes() const;

  // The page that Prometheus would read.
  std::string Scrape() const;
  // The value of the series whose name and labels are `series`, or -1.
  double Metric(const std::string& series) const;

  // Whether it becomes true within 20 s, or longer under a sanitizer. For what changes on the
  // server's threads.
  static bool Await(const std::function<bool()>& holds);
  bool AwaitMetric(const std::string& series, double value) const;

  FakeEngine* engine_ = nullptr;  // owned by the server; null with another engine
  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AttentionService::Stub> attention_;
  std::unique_ptr<v1::EncoderService::Stub> encoder_;
};

// Resident memory of this process, in bytes.
int64_t ResidentBytes();

}  // namespace castor::testing
