// The tenant that a call's metadata names, where nobody proves who they are.
#pragma once

#include <grpcpp/server_context.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace castor::server {

inline constexpr char kTenantKey[] = "castor-tenant";

// 1 to 64 letters, digits, '.', '_', '-'.
bool IsTenant(std::string_view name);

// The value of castor-tenant; empty if there is none. INVALID_FIELD if it is no name, or if there
// are several.
absl::StatusOr<std::string> TenantOf(const grpc::ServerContextBase& context);

}  // namespace castor::server
