#include "engine/ledger/fair_share.h"

#include "absl/base/attributes.h"

namespace castor {

// Never inlined into a noexcept function: see admission.cc.
ABSL_ATTRIBUTE_NOINLINE
void FairShare::Enter(Account& account) { order_.emplace(TurnOf(account), account.tenant); }

void FairShare::Move(Account& account, double time) {
  if (account.waits) order_.erase(TurnOf(account));
  account.time = time;
  if (account.waits) Enter(account);
}

void FairShare::Arrive(Account& account) noexcept {
  if (account.waits) return;
  account.time = std::max(account.time, now_ - credit_);
  account.waits = true;
  Enter(account);
}

void FairShare::Leave(Account& account) noexcept {
  if (!account.waits) return;
  order_.erase(TurnOf(account));
  account.waits = false;
}

void FairShare::Charge(Account& account, double service) noexcept {
  // The turn of an idle tenant would not have begun before now.
  const bool is_debt = !account.waits && service > 0;
  const double from = is_debt ? std::max(account.time, now_) : account.time;
  Move(account, from + service / account.weight);
}

void FairShare::Reweigh(Account& account, double weight) noexcept {
  const double ahead = account.time - now_;
  if (ahead > 0) Move(account, now_ + ahead * (account.weight / weight));
  account.weight = weight;
}

void FairShare::Rebase(Account& account) noexcept { Move(account, account.time - now_); }

}  // namespace castor
