#include "server/auth/caller_table.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace castor::server {

bool Credential::Allows(std::string_view method) const {
  if (every_method) return true;
  method.remove_prefix(1);
  const std::string_view service = method.substr(0, method.find('/'));
  return std::any_of(allow.begin(), allow.end(),
                     [&](const std::string& it) { return it == service || it == method; });
}

bool CallerTable::AddToken(const Digest& digest, Credential credential) {
  return tokens_.emplace(digest, std::move(credential)).second;
}

bool CallerTable::AddName(std::string name, Credential credential) {
  return names_.emplace(std::move(name), std::move(credential)).second;
}

const Credential* CallerTable::FindToken(const Digest& digest) const {
  const auto found = tokens_.find(digest);
  return found == tokens_.end() ? nullptr : &found->second;
}

const Credential* CallerTable::FindName(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &found->second;
}

bool CallerTable::HasCaller(std::string_view name) const {
  const auto is = [name](const auto& entry) { return entry.second.name == name; };
  return std::any_of(tokens_.begin(), tokens_.end(), is) ||
         std::any_of(names_.begin(), names_.end(), is);
}

bool IsTenant(std::string_view name) {
  constexpr size_t kMost = 64;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMost && std::all_of(name.begin(), name.end(), allowed);
}

absl::StatusOr<std::string> TenantOf(const Call& call) {
  const auto names = call.headers(kTenantKey);
  if (names.empty()) return std::string();
  const std::string_view name = names.front();
  if (names.size() > 1) return InvalidField(kTenantKey, "is given twice");
  if (!IsTenant(name)) {
    return InvalidField(kTenantKey, "must be 1 to 64 letters, digits, '.', '_', '-'");
  }
  return std::string(name);
}

}  // namespace castor::server
