// An algorithm in passes over tasks: its runner may divide the tasks of a pass among threads, or
// stop between two of them and go on later.
//
// One object belongs to one run at a time.
#pragma once

#include <cstdint>

namespace castor::kernels {

class Passes {
 public:
  struct Pass {
    int64_t tasks = 0;      // 0: the algorithm is done
    double operations = 0;  // of all tasks together, roughly, in simple instructions
    bool ordered = false;   // tasks are done one after another, from the first on
  };

  virtual ~Passes() = default;

  // The current pass.
  const Pass& pass() const { return pass_; }

  // Does one of its tasks: in any order and on any threads if the pass is not ordered.
  virtual void Do(int64_t task) = 0;

  // Goes on to the next pass, when all tasks are done.
  virtual void Next() = 0;

 protected:
  Pass pass_;
};

}  // namespace castor::kernels
