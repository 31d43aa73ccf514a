// Entries of several tenants, in an order that is fair between them: start-time fair queueing
// (Goyal et al., 1996) over the service that each has been charged with.
//
// Every tenant has a virtual time, at which its next entry would start; the tenant with the least
// is served next, and what it is charged, divided by its weight, moves its virtual time on. A
// tenant that comes back after a while starts at the virtual time of whoever is being served, less
// the service that it did not use meanwhile, up to a small credit. So tenants that always wait get
// service in proportion to their weights; one that asks for less than its share is served at once,
// and so are a few requests of it that come together. Who is not known yet has no credit: a new
// name brings nothing. Within a tenant the smallest key is first.
//
// Weights may change at any time. What a tenant has had beyond its turn is service: it stays, and
// in virtual time it counts by the new weight. If the virtual time stayed instead, what a weight of
// 0.001 once made of a second would keep the tenant out for a quarter of an hour after it had got a
// better one.
//
// Not thread-safe. Functions that change it are noexcept: without memory for a node the process
// ends, and an entry is never half inserted.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/attributes.h"
#include "engine/base/spare_nodes.h"
#include "engine/jobs/tenant_table.h"

namespace castor {

template <typename Key, typename Value>
class FairQueue {
 public:
  using Entries = std::map<Key, Value>;

  // `credit`: the most service, for a weight of 1, that a tenant may have left unused before.
  explicit FairQueue(TenantTablePtr terms, double credit = 0)
      : terms_(std::move(terms)), credit_(credit) {}

  bool empty() const { return waiting_.empty(); }

  void Insert(const std::string& name, const Key& key, Value value) noexcept {
    DoInsert(name, key, std::move(value));
  }

  // Takes an entry out. Requires that it is there. Allocates nothing.
  Value Remove(const std::string& name, const Key& key) noexcept {
    Tenant& tenant = *tenants_.find(name)->second;
    Value value = spare_entries_.Take(tenant.entries, tenant.entries.find(key));
    if (tenant.entries.empty()) {
      idle_.insert(waiting_.extract(tenant.turn()));
      ForgetIdle();
    }
    return value;
  }

  // The first entry, in the order of service, that `accept` takes; null if there is none.
  // `accept(key, value)` is asked in that order. From here on new weights apply.
  template <typename Accept>
  typename Entries::value_type* First(Accept&& accept) {
    ReadWeights();
    if (time_ > kFar) StartAnew();
    for (const auto& [turn, tenant] : waiting_) {
      for (auto& entry : tenant->entries) {
        if (accept(entry.first, entry.second)) return &entry;
      }
    }
    return nullptr;
  }

  // The virtual time of a tenant, which has entries.
  double TimeOf(const std::string& name) const { return tenants_.find(name)->second->time; }
  double WeightOf(const std::string& name) const { return tenants_.find(name)->second->weight; }

  // The tenant, which has entries, is served: others that come meanwhile start no later than this
  // service did. Call it before the entry is removed, and then charge the tenant.
  void Begin(const std::string& name) noexcept { time_ = std::max(time_, TimeOf(name)); }

  // Charges the tenant, which has entries, with service.
  void Charge(const std::string& name, double service) noexcept {
    Tenant& tenant = *tenants_.find(name)->second;
    auto node = waiting_.extract(tenant.turn());
    tenant.time += service / tenant.weight;
    node.key() = tenant.turn();
    waiting_.insert(std::move(node));
  }

  // Charges the tenant, whether or not it has entries, with service that it has had besides.
  void Settle(const std::string& name, double service) noexcept { DoSettle(name, service); }

  // How many tenants have entries.
  size_t waiting() const { return waiting_.size(); }

  // How many tenants are remembered.
  size_t tenants() const { return tenants_.size(); }

 private:
  struct Turn {
    double time = 0;
    uint64_t number = 0;  // of the tenant: no two turns are equal

    auto operator<=>(const Turn&) const = default;
  };
  struct Tenant {
    std::string name;
    double weight = 1;
    uint64_t number = 0;
    double time = 0;  // virtual: when its next entry starts
    Entries entries = {};

    Turn turn() const { return {time, number}; }
  };
  using Turns = std::map<Turn, Tenant*>;

  // A tenant that waits for nothing is remembered for as long as it has debt or credit, unless
  // there are very many: then those that were served longest ago are forgotten.
  static constexpr size_t kMostIdle = 1024;

  // Up to here a double tells one unit of service from none, whatever the weight. A tenant of 0.001
  // gets this far in a quarter of an hour of the device.
  static constexpr double kFar = 1e12;

  // Never inlined into what is noexcept: see batcher.cc.
  ABSL_ATTRIBUTE_NOINLINE void DoInsert(const std::string& name, const Key& key, Value&& value) {
    Tenant& tenant = Find(name);
    if (tenant.entries.empty()) {
      auto node = idle_.extract(tenant.turn());
      tenant.time = std::max(tenant.time, time_ - credit_);
      if (node.empty()) {
        waiting_.emplace(tenant.turn(), &tenant);
      } else {
        node.key() = tenant.turn();
        waiting_.insert(std::move(node));
      }
    }
    spare_entries_.Insert(tenant.entries, key, std::move(value));
  }

  ABSL_ATTRIBUTE_NOINLINE void DoSettle(const std::string& name, double service) {
    Tenant& tenant = Find(name);
    Turns& turns = tenant.entries.empty() ? idle_ : waiting_;
    auto node = turns.extract(tenant.turn());
    // Had it asked again, its turn would not have begun before now.
    if (tenant.entries.empty()) tenant.time = std::max(tenant.time, time_);
    tenant.time += service / tenant.weight;
    if (node.empty()) {  // it was not known
      turns.emplace(tenant.turn(), &tenant);
    } else {
      node.key() = tenant.turn();
      turns.insert(std::move(node));
    }
    ForgetIdle();
  }

  Tenant& Find(const std::string& name) {
    std::unique_ptr<Tenant>& tenant = tenants_[name];
    if (tenant == nullptr) {
      tenant = std::make_unique<Tenant>(Tenant{
          .name = name, .weight = terms_->WeightOf(name), .number = ++last_number_, .time = time_});
    }
    return *tenant;
  }

  // One walk over the tenants for each replacement of the terms.
  void ReadWeights() noexcept {
    const uint64_t version = terms_->version();
    if (version == version_) return;
    version_ = version;
    ForEach([this](Tenant& tenant) {
      const double weight = terms_->WeightOf(tenant.name);
      const double ahead = tenant.time - time_;
      if (ahead > 0) tenant.time = time_ + ahead * (tenant.weight / weight);
      tenant.weight = weight;
    });
  }

  // Virtual time begins at 0 again.
  void StartAnew() noexcept {
    ForEach([this](Tenant& tenant) { tenant.time -= time_; });
    time_ = 0;
  }

  // Changes all tenants' virtual times. Allocates nothing.
  template <typename Change>
  void ForEach(Change&& change) noexcept {
    for (Turns* const turns : {&waiting_, &idle_}) {
      Turns changed;
      while (!turns->empty()) {
        auto node = turns->extract(turns->begin());
        change(*node.mapped());
        node.key() = node.mapped()->turn();
        changed.insert(changed.end(), std::move(node));
      }
      turns->swap(changed);
    }
  }

  void ForgetIdle() {
    const auto matters = [this](double time) { return credit_ > 0 || time > time_; };
    while (!idle_.empty() && (!matters(idle_.begin()->first.time) || idle_.size() > kMostIdle)) {
      const Tenant* const tenant = idle_.begin()->second;
      idle_.erase(idle_.begin());
      tenants_.erase(tenants_.find(tenant->name));
    }
  }

  const TenantTablePtr terms_;
  uint64_t version_ = 0;  // of the terms, when weights were read
  const double credit_;
  std::unordered_map<std::string, std::unique_ptr<Tenant>> tenants_;
  uint64_t last_number_ = 0;
  Turns waiting_;  // of those with entries
  Turns idle_;     // of the others
  SpareNodes<Entries> spare_entries_;
  double time_ = 0;  // virtual: of the entry that was served last
};

}  // namespace castor
