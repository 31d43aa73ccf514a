#include "server/lifecycle/periodic.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace castor::server {

using std::chrono::steady_clock;

Periodic::Periodic() : thread_([this] { Run(); }) {}

Periodic::~Periodic() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Periodic::Run() {
  pthread_setname_np(pthread_self(), "periodic");
  MutexLock lock(mu_);
  while (!stopped_) {
    const auto next = std::min_element(tasks_.begin(), tasks_.end(),
                                       [](Task* a, Task* b) { return a->due_ < b->due_; });
    if (next == tasks_.end()) {
      changed_.Wait(mu_);
    } else if (Task* const task = *next; task->due_ > steady_clock::now()) {
      changed_.WaitUntil(mu_, task->due_);
    } else {
      running_ = task;
      mu_.Unlock();
      const Duration pause = task->work_();
      mu_.Lock();
      task->due_ = steady_clock::now() + pause;
      running_ = nullptr;
      changed_.NotifyAll();
    }
  }
}

Periodic::Task::Task(Periodic& periodic, Duration first, std::function<Duration()> work)
    : periodic_(periodic), work_(std::move(work)), due_(steady_clock::now() + first) {
  MutexLock lock(periodic_.mu_);
  periodic_.tasks_.push_back(this);
  periodic_.changed_.NotifyAll();
}

Periodic::Task::~Task() {
  MutexLock lock(periodic_.mu_);
  std::erase(periodic_.tasks_, this);
  while (periodic_.running_ == this) periodic_.changed_.Wait(periodic_.mu_);
}

}  // namespace castor::server
