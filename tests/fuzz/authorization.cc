// The header `authorization`, and the token in it, up to the table of callers.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/auth/caller_table.h"
#include "server/auth/token.h"

namespace {

using namespace castor::server;

constexpr std::string_view kToken = "castor_right";

const CallerTable& Callers() {
  static const CallerTable* const table = [] {
    auto* made = new CallerTable;
    made->AddToken(DigestOf(kToken), Credential{.name = "caller"});
    return made;
  }();
  return *table;
}

void Require(bool holds) {
  if (!holds) std::abort();
}

// Only the right token finds the caller.
void Look(std::string_view token) {
  const Digest digest = DigestOf(token);
  Require((Callers().FindToken(digest) != nullptr) == (token == kToken));
  Require(FromHex(ToHex(digest)) == digest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view value(reinterpret_cast<const char*>(data), size);
  if (const auto token = BearerToken(value)) {
    Require(token->data() >= value.data() &&
            token->data() + token->size() == value.data() + value.size());
    Require(!token->empty() && token->size() <= kMaxTokenBytes);
    const std::string again = "bearer   " + std::string(*token);
    Require(BearerToken(again) == token);
    Look(*token);
  }
  if (const auto basic = BasicCredentials(value)) {
    Require(!BearerToken(value).has_value());
    Look(basic->password);
  }
  static_cast<void>(FromHex(value));
  return 0;
}
