#include "server/auth/tenant.h"

#include <algorithm>

#include "engine/base/error.h"

namespace castor::server {

bool IsTenant(std::string_view name) {
  constexpr size_t kMost = 64;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMost && std::all_of(name.begin(), name.end(), allowed);
}

absl::StatusOr<std::string> TenantOf(const grpc::ServerContextBase& context) {
  const auto [first, last] = context.client_metadata().equal_range(kTenantKey);
  if (first == last) return std::string();
  const std::string_view name(first->second.data(), first->second.size());
  if (std::next(first) != last) return InvalidField(kTenantKey, "is given twice");
  if (!IsTenant(name)) {
    return InvalidField(kTenantKey, "must be 1 to 64 letters, digits, '.', '_', '-'");
  }
  return std::string(name);
}

}  // namespace castor::server
