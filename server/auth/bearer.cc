#include "server/auth/bearer.h"

#include <algorithm>

#include "absl/strings/escaping.h"

namespace castor::server {
namespace {

// RFC 6750's b64token.
bool IsTokenCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-._~+/=").find(c) != std::string_view::npos;
}

// What follows "SCHEME " in the header.
std::optional<std::string_view> After(std::string_view scheme, std::string_view value) {
  if (value.size() <= scheme.size() || value[scheme.size()] != ' ') return std::nullopt;
  for (size_t i = 0; i < scheme.size(); ++i) {
    if ((value[i] | 0x20) != scheme[i]) return std::nullopt;  // letters alone differ by that bit
  }
  value.remove_prefix(scheme.size());
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  const bool fits = !value.empty() && value.size() <= kMaxTokenBytes &&
                    std::all_of(value.begin(), value.end(), IsTokenCharacter);
  return fits ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<std::string_view> BearerToken(std::string_view value) {
  return After("bearer", value);
}

std::optional<NameAndPassword> BasicCredentials(std::string_view value) {
  const auto encoded = After("basic", value);
  if (!encoded) return std::nullopt;
  std::string decoded;
  if (!absl::Base64Unescape({encoded->data(), encoded->size()}, &decoded)) return std::nullopt;
  const size_t colon = decoded.find(':');
  if (colon == std::string::npos) return std::nullopt;
  return NameAndPassword{decoded.substr(0, colon), decoded.substr(colon + 1)};
}

}  // namespace castor::server
