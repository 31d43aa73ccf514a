#include "server/auth/caller_table.h"

#include <algorithm>
#include <utility>

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

}  // namespace castor::server
