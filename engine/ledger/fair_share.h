// How tenants take turns at one resource: start-time fair queueing (Goyal, Vin and Cheng, 1996)
// over the service that each has been charged with.
//
// Every tenant has a virtual time, at which its next service would start. The waiting tenant with
// the smallest is served next, and what it is charged, divided by its weight, advances its virtual
// time. A tenant that returns after a while starts at the virtual time of the tenant being served,
// less the service that it did not use meanwhile, up to a small credit. So tenants that always wait
// get service in proportion to their weights, and a tenant that asks for less than its share is
// served at once, also when a few of its requests come together. An unknown tenant has no credit,
// so a new name brings no advantage.
//
// Not thread-safe: the ledger guards it. Functions that change it are noexcept: the process ends if
// there is no memory for a node.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "absl/container/btree_map.h"

namespace castor {

struct Tenant;

class FairShare {
 public:
  // `credit`: the most unused service, for a weight of 1, that a returning tenant gets back.
  explicit FairShare(double credit = 0) : credit_(credit) {}

  // A tenant's state at this resource.
  struct Account {
    Tenant* tenant = nullptr;
    uint64_t number = 0;  // unique to the tenant, so that no two turns are equal
    double weight = 1;
    double time = 0;  // virtual
    bool waits = false;
  };

  // Starts the account of a tenant that was not known.
  void Open(Account& account) const { account.time = now_; }

  // The tenant begins to wait for service; it no longer waits.
  void Arrive(Account& account) noexcept;
  void Leave(Account& account) noexcept;

  // The tenant's service begins: tenants that arrive meanwhile start no later than it did.
  void Begin(const Account& account) { now_ = std::max(now_, account.time); }

  // Charges a tenant with service, whether or not it waits; a negative charge gives some back.
  void Charge(Account& account, double service) noexcept;

  // Changes a weight. A tenant still owes the service that it has had beyond its turn, and the new
  // weight converts that to virtual time. If virtual time stayed instead, a second of service at a
  // weight of 0.001 would keep a tenant out for a quarter of an hour after its weight was raised.
  void Reweigh(Account& account, double weight) noexcept;

  // The waiting tenants in the order of service.
  struct Turn {
    double time;
    uint64_t number;
    auto operator<=>(const Turn&) const = default;
  };
  const absl::btree_map<Turn, Tenant*>& order() const { return order_; }

  // Whether the tenant has had more than its share by now.
  bool Owes(const Account& account) const { return account.time > now_; }

  // Whether virtual time is so large that a double may lose a unit of service of a tenant with a
  // great weight. A tenant of weight 0.001 gets there in a quarter of an hour. Virtual time must
  // then restart at 0: call Rebase for every account, then FinishRebase.
  bool NeedsRebase() const { return now_ > 1e12; }
  void Rebase(Account& account) noexcept;
  void FinishRebase() { now_ = 0; }

 private:
  static Turn TurnOf(const Account& account) { return {account.time, account.number}; }
  void Enter(Account& account);
  void Move(Account& account, double time);

  const double credit_;
  absl::btree_map<Turn, Tenant*> order_;
  double now_ = 0;  // the virtual time at which the last service began
};

}  // namespace castor
