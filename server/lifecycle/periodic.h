// Work that is done again and again, such as looks at files, memory and progress: all of it on one
// thread.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"

namespace castor::server {

// Any thread. Must outlive its tasks.
class Periodic {
 public:
  using Duration = std::chrono::steady_clock::duration;

  class Task;

  Periodic();
  ~Periodic();
  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  std::vector<Task*> tasks_ ABSL_GUARDED_BY(mu_);
  const Task* running_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses everything above
};

// From construction to destruction, which waits for a call that is under way, `work` is called:
// first after `first`, then after whatever it returned. All other tasks wait for it meanwhile, so
// it must not wait for anything. It must not destroy its own task.
class Periodic::Task {
 public:
  Task(Periodic& periodic, Duration first, std::function<Duration()> work);
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

 private:
  friend class Periodic;

  Periodic& periodic_;
  const std::function<Duration()> work_;
  TimePoint due_;  // under the lock of periodic_
};

}  // namespace castor::server
