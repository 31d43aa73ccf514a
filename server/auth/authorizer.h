// Who calls, and whether they may.
//
// MessageService asks this for every call of every method of ours, when the call's headers are
// there and before its message is read. A method cannot be added without it.
#pragma once

#include <grpcpp/server_context.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace castor::server {

// Who makes a call. Both are empty where nobody is told from anybody else.
struct Caller {
  std::string name;    // for logs
  std::string tenant;  // who shares its budgets and owns what it leaves on the server
};

class Authorizer {
 public:
  virtual ~Authorizer() = default;

  // `context` has the call's metadata and what the connection's handshake said of its peer;
  // `method` is "/package.Service/Method". Errors: UNAUTHENTICATED where it is not known who calls,
  // PERMISSION_DENIED where that caller may not. Runs on gRPC's threads; must not block.
  virtual absl::StatusOr<Caller> Authorize(const grpc::ServerContextBase& context,
                                           std::string_view method) const = 0;
};

// Everybody may do everything, as the tenant that their metadata names. INVALID_ARGUMENT for what
// is no tenant's name.
class OpenToAll final : public Authorizer {
 public:
  absl::StatusOr<Caller> Authorize(const grpc::ServerContextBase& context,
                                   std::string_view method) const override;
};

}  // namespace castor::server
