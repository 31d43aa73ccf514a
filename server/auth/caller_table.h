// The file of callers, read: who may call what. Immutable; any thread may use it.
#pragma once

#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/auth/token.h"
#include "server/transport/call.h"

namespace castor::server {

// A token or a name in a certificate: whose it is and what it allows.
struct Credential {
  std::string name{};                // the caller's, and its tenant's
  bool every_method = false;         // or only those in
  std::vector<std::string> allow{};  // "package.Service" and "package.Service/Method"
  bool metrics = false;              // may read /metrics
  std::optional<std::chrono::system_clock::time_point> expires{};

  bool expired(std::chrono::system_clock::time_point now) const {
    return expires && *expires <= now;
  }
  // `method` is "/package.Service/Method".
  bool Allows(std::string_view method) const;
};

class CallerTable {
 public:
  // False if the token, or the name, is there already.
  bool AddToken(const Digest& digest, Credential credential);
  bool AddName(std::string name, Credential credential);
  void SetTenant(const std::string& name, TenantTerms terms) { tenants_[name] = terms; }

  // Null if there is none. Takes as long for a token that is nearly right as for any other.
  const Credential* FindToken(const Digest& digest) const;
  // `name` is a subject alternative name of a client's certificate: a URI or a DNS name.
  const Credential* FindName(std::string_view name) const;

  bool empty() const { return tokens_.empty() && names_.empty(); }
  size_t size() const { return tokens_.size() + names_.size(); }
  bool HasCaller(std::string_view name) const;

  // Terms of the tenants that have their own.
  const std::map<std::string, TenantTerms>& tenants() const { return tenants_; }

 private:
  // A caller cannot choose the digest of what it sends, so a bucket reveals nothing. Digests are
  // compared in constant time.
  struct Bucket {
    size_t operator()(const Digest& digest) const {
      size_t first = 0;
      std::memcpy(&first, digest.data(), sizeof(first));
      return first;
    }
  };
  struct Same {
    bool operator()(const Digest& a, const Digest& b) const { return Equal(a, b); }
  };

  std::unordered_map<Digest, Credential, Bucket, Same> tokens_;
  std::map<std::string, Credential, std::less<>> names_;
  std::map<std::string, TenantTerms> tenants_;
};

// The metadata in which a call names its tenant, on a server without authentication.
inline constexpr char kTenantKey[] = "castor-tenant";

// 1 to 64 letters, digits, '.', '_', '-'.
bool IsTenant(std::string_view name);

// The value of castor-tenant; empty if there is none. INVALID_FIELD if it is no name, or if there
// are several.
absl::StatusOr<std::string> TenantOf(const Call& call);

}  // namespace castor::server
