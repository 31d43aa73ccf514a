#include "server/auth/authorizer.h"

#include "server/auth/tenant.h"

namespace castor::server {

absl::StatusOr<Caller> OpenToAll::Authorize(const grpc::ServerContextBase& context,
                                            std::string_view) const {
  auto tenant = TenantOf(context);
  if (!tenant.ok()) return tenant.status();
  return Caller{.name = {}, .tenant = *std::move(tenant)};
}

}  // namespace castor::server
