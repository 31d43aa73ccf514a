// Run controls with which tests observe or interrupt runs.
#pragma once

#include <functional>
#include <utility>

#include "engine/base/run_control.h"

namespace castor {

// Asks for a checkpoint wherever one is possible, counts them, and calls the test's function at
// each.
class AtEvery final : public RunControl {
 public:
  explicit AtEvery(std::function<absl::Status()> act = [] { return absl::OkStatus(); })
      : RunControl(Duration::zero()), act_(std::move(act)) {}

  int count() const { return count_; }

 private:
  absl::Status AtCheckpoint() override {
    ++count_;
    return act_();
  }

  const std::function<absl::Status()> act_;
  int count_ = 0;
};

}  // namespace castor
