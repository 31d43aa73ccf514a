// A request's progress through the kernels that the automatic one may run for it: from an
// approximation to a more exact one, while the error is larger than its caller allows.
//
// Depends only on what it is told. Belongs to one request; not thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/automatic/rungs.h"
#include "engine/request.h"

namespace castor::attention {

class Ladder {
 public:
  // At least one rung, each more exact than the one before.
  Ladder(std::vector<Rung> rungs, double max_relative_error);

  // The rung that runs next, or ran last.
  const Rung& current() const { return rungs_[current_]; }

  // Whether the run of current() must be followed by an estimate of its error.
  bool needs_estimate() const { return !settled_ && IsApproximate(NameOf(current().kernel)); }

  // Takes the estimate for the last run. True: the run is the answer. False: current() has changed
  // and must run. It is then the next rung that may be expected to meet the allowance, going by the
  // error just seen and LossOf; the last one if none is. If no kernel meets the allowance, the one
  // with the smallest estimate is the answer; it runs again if another ran last.
  bool Accept(const Fidelity& estimate, double measured_us);

  // Of the answer; nullopt when it is exact.
  std::optional<Fidelity> fidelity() const;

  // Runs that are not the answer, in order.
  std::vector<RejectedKernel> rejected() const;

  // Every kernel that may still run.
  std::span<const Rung> rungs() const { return rungs_; }

 private:
  struct Attempt {
    size_t rung;
    Fidelity estimate;
    double measured_us;
  };

  bool Promises(size_t rung, double error) const;

  std::vector<Rung> rungs_;
  double max_relative_error_;
  size_t current_ = 0;
  bool settled_ = false;  // current() is the answer, whatever its error
  std::vector<Attempt> attempts_;
};

}  // namespace castor::attention
