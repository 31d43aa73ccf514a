#include "client/load/workers/token.h"

#include <sys/random.h>

#include <stdexcept>

#include "client/file.h"

namespace castor::load {
namespace {

constexpr size_t kLeastLength = 16;
constexpr size_t kGreatestLength = 4096;
constexpr size_t kRandomBytes = 32;

}  // namespace

std::string ReadToken(const std::string& path) {
  auto file = client::InputFile::Open(path);
  std::string token;
  absl::Status status = file.status();
  if (file.ok()) status = file->Append(kGreatestLength, &token);
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  token.resize(std::min(token.find_first_of("\r\n"), token.size()));
  if (token.size() < kLeastLength) {
    throw std::runtime_error("'" + path + "': the token in its first line has fewer than 16 " +
                             "characters");
  }
  for (const char c : token) {
    if (c > ' ' && c <= '~') continue;
    throw std::runtime_error("'" + path + "': the token has characters other than visible ASCII");
  }
  return token;
}

std::string MakeToken() {
  unsigned char bytes[kRandomBytes];
  if (getrandom(bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes))) {
    throw std::runtime_error("the system gave no random bytes for a token");
  }
  std::string token;
  for (const unsigned char byte : bytes) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

bool SameToken(std::string_view given, std::string_view expected) {
  // Read all of `given`, whatever is in it.
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char other = expected.empty() ? '\0' : expected[i % expected.size()];
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

std::string Bearer(const std::string& token) { return "Bearer " + token; }

}  // namespace castor::load
