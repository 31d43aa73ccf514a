#include "server/auth/token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "absl/strings/escaping.h"

namespace castor::server {
namespace {

// OpenSSL 3 looks an algorithm up by name each time that it is not given one.
const EVP_MD* Sha256() {
  static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return sha256;
}

}  // namespace

Digest DigestOf(std::string_view token) {
  thread_local const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                                EVP_MD_CTX_free);
  Digest digest{};
  if (context == nullptr || EVP_DigestInit_ex2(context.get(), Sha256(), nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), token.data(), token.size()) != 1 ||
      EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) != 1) {
    // Do not return a digest that is the same for every token.
    throw std::runtime_error("OpenSSL does not provide SHA-256");
  }
  return digest;
}

std::string ToHex(const Digest& digest) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::optional<Digest> FromHex(std::string_view text) {
  Digest digest{};
  if (text.size() != 2 * digest.size() ||
      text.find_first_not_of("0123456789abcdefABCDEF") != text.npos) {
    return std::nullopt;
  }
  const std::string bytes = absl::HexStringToBytes({text.data(), text.size()});
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

bool Equal(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string DrawToken() {
  std::array<unsigned char, 32> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    throw std::runtime_error("the system provides no random numbers");
  }
  return "castor_" +
         absl::WebSafeBase64Escape({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

namespace {

// RFC 6750's b64token.
bool IsTokenCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-._~+/=").find(c) != std::string_view::npos;
}

// The credential after "SCHEME " in the header.
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
