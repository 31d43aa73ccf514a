// A request's share of the ledger's budgets, and its place in the order of service while it waits.
// The destructor gives both back, on any thread. It outlives the job, with the answer's bytes,
// until their holder releases them. Movable. Keeps its ledger alive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "engine/ledger/budgets.h"
#include "engine/ledger/rank.h"
#include "engine/request.h"

namespace castor {

class Ledger;
struct Tenant;

class Reservation final : public AnswerShare {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(tenant_, other.tenant_);
    std::swap(cost_, other.cost_);
    std::swap(place_, other.place_);
    std::swap(gathers_, other.gathers_);
    return *this;
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() override { Release(); }

  // Gives back all but `bytes`: the request is answered, and its caller still holds the answer. The
  // bytes may grow, unless the reservation holds none.
  void ResizeTo(int64_t bytes) noexcept override;

  void Release() noexcept;

 private:
  friend class Ledger;

  std::shared_ptr<Ledger> ledger_;
  Tenant* tenant_ = nullptr;
  Cost cost_;
  std::optional<Rank> place_;  // in the tenant's line, while it waits
  bool gathers_ = false;       // made by Ledger::Reserve: counts against the tenant's quotas only
};

}  // namespace castor
