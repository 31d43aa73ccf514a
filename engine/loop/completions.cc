#include "engine/loop/completions.h"

#include <utility>

#include "engine/loop/answer.h"

namespace castor {

Completions::Completions(int threads, Ledger& ledger, Counters& counters)
    : ledger_(ledger),
      counters_(counters),
      threads_(
          threads, [this] { Run(); }, [this] { ledger_.Stop(); }) {}

void Completions::Run() noexcept {
  Ledger::AtHand at_hand = Ledger::AtHand::kNothing;
  while (true) {
    Answer answer;
    if (!ledger_.NextAnswer(/*wait=*/true, &at_hand, &answer)) return;
    // Counted before delivery, so that a caller that has its answer also sees it counted.
    if (!answer.status.ok()) counters_.Refused(answer.status);
    Deliver(std::move(answer));
  }
}

}  // namespace castor
