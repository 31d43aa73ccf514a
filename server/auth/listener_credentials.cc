#include "server/auth/listener_credentials.h"

namespace castor::server {

std::shared_ptr<grpc::ServerCredentials> ListenerCredentials(const ServerOptions&) {
  return grpc::InsecureServerCredentials();
}

}  // namespace castor::server
