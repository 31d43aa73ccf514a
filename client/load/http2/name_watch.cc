#include "client/load/http2/name_watch.h"

#include <exception>
#include <utility>

namespace castor::load {

NameWatch::NameWatch(std::string target, Resolver resolve, std::function<void()> changed,
                     std::chrono::milliseconds least_gap)
    : target_(std::move(target)),
      resolve_(std::move(resolve)),
      changed_(std::move(changed)),
      least_gap_(least_gap),
      addresses_(resolve_(target_)) {}

NameWatch::~NameWatch() {
  {
    const std::lock_guard lock(mu_);
    stop_ = true;
  }
  asked_changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void NameWatch::Ask() {
  {
    const std::lock_guard lock(mu_);
    asked_ = true;
  }
  asked_changed_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { Watch(); });
}

std::optional<std::vector<Address>> NameWatch::Take() {
  if (!fresh_.exchange(false, std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(mu_);
  return addresses_;
}

void NameWatch::Watch() {
  std::unique_lock lock(mu_);
  while (true) {
    asked_changed_.wait(lock, [this] { return asked_ || stop_; });
    if (stop_) return;
    asked_ = false;
    lock.unlock();
    std::vector<Address> now;
    try {
      now = resolve_(target_);
    } catch (const std::exception&) {  // the server may be gone, or the name server busy
    }
    lock.lock();
    if (now.empty()) {
      asked_ = true;
    } else if (now != addresses_) {
      addresses_ = std::move(now);
      fresh_.store(true, std::memory_order_release);
      lock.unlock();
      changed_();
      lock.lock();
    }
    asked_changed_.wait_for(lock, least_gap_, [this] { return stop_; });
  }
}

}  // namespace castor::load
