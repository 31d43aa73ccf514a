// Controls of runs that tests look into or interrupt.
#pragma once

#include <functional>
#include <utility>

#include "engine/base/run_control.h"

namespace castor {

// Comes to a checkpoint wherever there can be one, counts them, and does there what a test wants.
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
