// Calls of grpc.health.v1.Health.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"

namespace castor::testing {

using HealthStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

// SERVICE_UNKNOWN for a name that the server does not know.
inline HealthStatus CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                                const std::string& name) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(name);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status =
      grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    return grpc::health::v1::HealthCheckResponse::SERVICE_UNKNOWN;
  }
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.status();
}

inline std::map<std::string, HealthStatus> ListHealth(
    const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  grpc::health::v1::HealthListResponse response;
  const grpc::Status status =
      grpc::health::v1::Health::NewStub(channel)->List(&context, {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::map<std::string, HealthStatus> statuses;
  for (const auto& [name, one] : response.statuses()) statuses[name] = one.status();
  return statuses;
}

// One open Watch stream.
class Watching {
 public:
  Watching(const std::shared_ptr<grpc::Channel>& channel, const std::string& name)
      : stub_(grpc::health::v1::Health::NewStub(channel)) {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(name);
    reader_ = stub_->Watch(&context_, request);
  }

  // The next status; UNKNOWN when the stream has ended.
  HealthStatus Next() {
    grpc::health::v1::HealthCheckResponse response;
    return reader_->Read(&response) ? response.status()
                                    : grpc::health::v1::HealthCheckResponse::UNKNOWN;
  }

  grpc::Status Finish() { return reader_->Finish(); }
  void Cancel() { context_.TryCancel(); }

 private:
  std::unique_ptr<grpc::health::v1::Health::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<grpc::health::v1::HealthCheckResponse>> reader_;
};

}  // namespace castor::testing
