// Numbers learned from requests, for each tenant apart, so that nobody's inputs change what
// another's requests go by. A bounded number: what was learned longest ago is forgotten, that of
// the tenant with the most first.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace castor {

template <typename Kind, typename Value>
class LearnedByTenant {
 public:
  // Holds `most` values, at least 1.
  explicit LearnedByTenant(size_t most) : most_(most) {}

  // Null: nothing is known.
  const Value* Find(const std::string& tenant, const Kind& kind) const {
    const auto kinds = tenants_.find(tenant);
    if (kinds == tenants_.end()) return nullptr;
    const auto found = kinds->second.find(kind);
    return found == kinds->second.end() ? nullptr : &found->second.value;
  }

  // What is known, to be changed: it is the last to be forgotten. `first` where nothing is.
  Value& Learn(const std::string& tenant, const Kind& kind, const Value& first = {}) {
    if (size_ >= most_ && Find(tenant, kind) == nullptr) ForgetOne();
    const auto [entry, added] = tenants_[tenant].try_emplace(kind, Entry{0, first});
    if (added) ++size_;
    entry->second.learned = ++learned_;
    return entry->second.value;
  }

 private:
  struct Entry {
    uint64_t learned = 0;  // when: what Learn had counted to
    Value value;
  };
  using Kinds = std::map<Kind, Entry>;

  void ForgetOne() {
    size_t most = 0;
    for (const auto& [tenant, kinds] : tenants_) most = std::max(most, kinds.size());
    auto from = tenants_.end();
    typename Kinds::iterator oldest;
    for (auto tenant = tenants_.begin(); tenant != tenants_.end(); ++tenant) {
      if (tenant->second.size() < most) continue;
      for (auto at = tenant->second.begin(); at != tenant->second.end(); ++at) {
        if (from != tenants_.end() && at->second.learned > oldest->second.learned) continue;
        from = tenant;
        oldest = at;
      }
    }
    from->second.erase(oldest);
    if (from->second.empty()) tenants_.erase(from);
    --size_;
  }

  const size_t most_;
  std::map<std::string, Kinds> tenants_;  // none is empty
  size_t size_ = 0;
  uint64_t learned_ = 0;
};

}  // namespace castor
