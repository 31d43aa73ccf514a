// A server in this process that answers every call at once with nothing: what is left is what the
// client can do.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>

namespace castor::load {

class EchoServer {
 public:
  // Listens on a Unix socket of its own. Throws cli::UsageError if it cannot.
  EchoServer();
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  const std::string& target() const { return target_; }

 private:
  class Service;
  std::string target_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace castor::load
