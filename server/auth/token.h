// Tokens: 32 random bytes as text. The server keeps only their SHA-256, so a stolen file of callers
// is useless.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace castor::server {

using Digest = std::array<uint8_t, 32>;

// SHA-256 of the token's text. Any thread; some 0.2 us.
Digest DigestOf(std::string_view token);

// Lower-case hexadecimal, and back: 64 digits of either case.
std::string ToHex(const Digest& digest);
std::optional<Digest> FromHex(std::string_view text);

// Whether they are equal, in a time that does not depend on where they differ.
bool Equal(const Digest& a, const Digest& b);

// "castor_" and 43 characters of base64url, from the system's random numbers. The prefix lets
// scanners of repositories and logs find tokens.
std::string DrawToken();

// The HTTP header `authorization`.
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

// `castor-server token ...`: draws a token and writes its entry for --auth-tokens. `argv[0]` is
// "token". Returns the exit code: 0, 1 (it cannot be written) or 2 (bad arguments).
int RunTokenCommand(int argc, const char* const* argv);

}  // namespace castor::server
