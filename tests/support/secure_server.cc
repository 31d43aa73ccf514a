#include "tests/support/secure_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <mutex>
#include <stdexcept>

#include "castor/v1/attention.grpc.pb.h"
#include "castor/v1/server.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace castor::testing {
// Records the caller, and checks the token.
class SecureDoor {
 public:
  grpc::Status Enter(const grpc::ServerContext& context) {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto names = context.auth_context()->FindPropertyValues("x509_common_name");
    caller_ = names.empty() ? "" : std::string(names[0].data(), names[0].size());
    const auto token = context.client_metadata().find("authorization");
    authorization_ = token == context.client_metadata().end()
                         ? ""
                         : std::string(token->second.data(), token->second.size());
    if (token_.empty() || authorization_ == "Bearer " + token_) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, "who calls?"};
  }
  void RequireToken(const std::string& token) {
    const std::lock_guard<std::mutex> lock(mu_);
    token_ = token;
  }
  std::string caller() const {
    const std::lock_guard<std::mutex> lock(mu_);
    return caller_;
  }
  std::string authorization() const {
    const std::lock_guard<std::mutex> lock(mu_);
    return authorization_;
  }

 private:
  mutable std::mutex mu_;
  std::string token_, caller_, authorization_;
};

class SecureHealthService : public grpc::health::v1::Health::Service {
 public:
  explicit SecureHealthService(SecureDoor& door) : door_(door) {}
  grpc::Status Check(grpc::ServerContext* context, const grpc::health::v1::HealthCheckRequest*,
                     grpc::health::v1::HealthCheckResponse* response) override {
    response->set_status(grpc::health::v1::HealthCheckResponse::SERVING);
    return door_.Enter(*context);
  }

 private:
  SecureDoor& door_;
};

class SecureInfoService : public v1::ServerService::Service {
 public:
  explicit SecureInfoService(SecureDoor& door) : door_(door) {}
  grpc::Status GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* response) override {
    response->set_version("test");
    return door_.Enter(*context);
  }

 private:
  SecureDoor& door_;
};

class SecureAttendService : public v1::AttentionService::Service {
 public:
  explicit SecureAttendService(SecureDoor& door) : door_(door) {}
  grpc::Status Attend(grpc::ServerContext* context, const v1::AttendRequest* request,
                      v1::AttendResponse* response) override {
    *response->mutable_output() = request->query();
    return door_.Enter(*context);
  }

 private:
  SecureDoor& door_;
};

namespace {

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const SecureServer::Options& options) {
  if (!options.identity) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions made(
      options.client_authority.empty()
          ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  made.pem_root_certs = options.client_authority;
  made.pem_key_cert_pairs.push_back({options.identity->key, options.identity->certificate});
  return grpc::SslServerCredentials(made);
}

}  // namespace

class SecureServer::Impl {
 public:
  ~Impl() { Stop(); }

  void Listen(const Options& options) {
    Stop();
    grpc::ServerBuilder builder;
    const std::string address = "127.0.0.1:" + std::to_string(port_);
    builder.AddListeningPort(address, CredentialsOf(options), &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(&health_);
    builder.RegisterService(&info_);
    builder.RegisterService(&attend_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) throw std::runtime_error("cannot listen at " + address);
  }

  SecureDoor& door() { return door_; }
  int port() const { return port_; }

 private:
  void Stop() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  SecureDoor door_;
  SecureHealthService health_{door_};
  SecureInfoService info_{door_};
  SecureAttendService attend_{door_};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

SecureServer::SecureServer(Options options) : impl_(std::make_unique<Impl>()) {
  impl_->Listen(options);
}
SecureServer::~SecureServer() = default;
int SecureServer::port() const { return impl_->port(); }
void SecureServer::Restart(Options options) { impl_->Listen(options); }
void SecureServer::RequireToken(const std::string& token) { impl_->door().RequireToken(token); }
std::string SecureServer::caller() const { return impl_->door().caller(); }
std::string SecureServer::authorization() const { return impl_->door().authorization(); }

}  // namespace castor::testing
