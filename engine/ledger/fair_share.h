// How tenants take turns at one resource: start-time fair queueing (Goyal, Vin and Cheng, 1996)
// over the service that each has been charged with.
//
// Every tenant has a virtual time, at which its next service would start; the waiting tenant with
// the least is served next, and what it is charged, divided by its weight, moves its virtual time
// on. A tenant that comes back after a while starts at the virtual time of whoever is being served,
// less the service that it did not use meanwhile, up to a small credit. So tenants that always wait
// get service in proportion to their weights; one that asks for less than its share is served at
// once, and so are a few requests of it that come together. A tenant that is not known yet has no
// credit: a new name brings nothing.
//
// Not thread-safe: the ledger guards it. Functions that change it are noexcept: without memory for
// a node the process ends.
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
  // `credit`: the most service, for a weight of 1, that a tenant may have left unused before.
  explicit FairShare(double credit = 0) : credit_(credit) {}

  // A tenant's, with this resource.
  struct Account {
    Tenant* tenant = nullptr;
    uint64_t number = 0;  // the tenant's own: no two turns are equal
    double weight = 1;
    double time = 0;  // virtual
    bool waits = false;
  };

  // Of a tenant that was not known.
  void Open(Account& account) const { account.time = now_; }

  // The tenant has something that waits; it has nothing more.
  void Arrive(Account& account) noexcept;
  void Leave(Account& account) noexcept;

  // The tenant is served: others that come meanwhile start no later than this service did.
  void Begin(const Account& account) { now_ = std::max(now_, account.time); }

  // Charges a tenant, whether or not it waits, with service; or, below 0, gives some back.
  void Charge(Account& account, double service) noexcept;

  // Changes a weight. What a tenant has had beyond its turn is service: it stays, and in virtual
  // time it counts by the new weight. If the virtual time stayed instead, what a weight of 0.001
  // once made of a second would keep the tenant out for a quarter of an hour after it had got a
  // better one.
  void Reweigh(Account& account, double weight) noexcept;

  // The tenants that wait, in the order of service.
  struct Turn {
    double time;
    uint64_t number;
    auto operator<=>(const Turn&) const = default;
  };
  const absl::btree_map<Turn, Tenant*>& order() const { return order_; }

  // Whether the tenant has had more than its share by now.
  bool Owes(const Account& account) const { return account.time > now_; }

  // Up to here a double tells one unit of service from none, whatever the weight. A tenant of 0.001
  // gets this far in a quarter of an hour. Then virtual time must begin at 0 again: StartAnew takes
  // every account in turn, and then FinishAnew.
  bool IsFar() const { return now_ > 1e12; }
  void StartAnew(Account& account) noexcept;
  void FinishAnew() { now_ = 0; }

 private:
  static Turn TurnOf(const Account& account) { return {account.time, account.number}; }
  void Enter(Account& account);
  void Move(Account& account, double time);

  const double credit_;
  absl::btree_map<Turn, Tenant*> order_;
  double now_ = 0;  // the virtual time of who was served last
};

}  // namespace castor
