// What the HTTP header `authorization` says.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace castor::server {

inline constexpr char kAuthorizationKey[] = "authorization";
inline constexpr size_t kMaxTokenBytes = 1024;

// The token in "Bearer TOKEN" (RFC 6750), a view into `value`; the scheme in any case. Nothing if
// it is anything else.
std::optional<std::string_view> BearerToken(std::string_view value);

// The parts of "Basic BASE64(NAME:PASSWORD)" (RFC 7617), likewise.
struct NameAndPassword {
  std::string name;
  std::string password;
};
std::optional<NameAndPassword> BasicCredentials(std::string_view value);

}  // namespace castor::server
