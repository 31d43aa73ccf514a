// Decides the race between a call's cancellation and its admission.
//
// The engine names an admitted request by a ticket, which the handler's thread learns when Submit
// returns; the caller may go away on another thread before, during or after that. One atomic word
// holds which came first:
//
//   kSubmitting --SetTicket--> kAdmitted --Cancel--> kCancelled    Cancel gets the ticket
//   kSubmitting --Cancel-----> kCancelled                          SetTicket returns false
//
// Whichever comes second cancels the ticket, so exactly one of the two does. An earlier completion
// changes nothing here: the engine ignores tickets that it has answered.
#pragma once

#include <atomic>
#include <optional>

#include "engine/engine.h"

namespace castor::server {

class Cancellation {
 public:
  // Called at most once, by the thread that submitted. False: the call was cancelled meanwhile, and
  // this thread must cancel the ticket.
  bool SetTicket(Ticket ticket) {
    ticket_ = ticket;
    State expected = State::kSubmitting;
    return state_.compare_exchange_strong(expected, State::kAdmitted, std::memory_order_release,
                                          std::memory_order_acquire);
  }

  // Any thread. Returns the ticket that this thread must cancel; nullopt if there is none yet, or
  // if an earlier Cancel returned it.
  std::optional<Ticket> Cancel() {
    const State before = state_.exchange(State::kCancelled, std::memory_order_acq_rel);
    if (before != State::kAdmitted) return std::nullopt;
    return ticket_;
  }

  bool cancelled() const { return state_.load(std::memory_order_acquire) == State::kCancelled; }

 private:
  enum class State { kSubmitting, kAdmitted, kCancelled };

  std::atomic<State> state_ = State::kSubmitting;
  Ticket ticket_ = 0;  // written before kAdmitted is published, read after it is seen
};

}  // namespace castor::server
