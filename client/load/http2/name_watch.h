// The addresses of a name as they change: those of a Kubernetes headless Service are its pods.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/load/http2/address.h"

namespace castor::load {

using Resolver = std::function<std::vector<Address>(const std::string& target)>;

// Asks on a thread of its own, since the answer may take seconds; it waits for the one that is on
// its way when it ends. All methods: one thread, which calls none from `changed`.
class NameWatch {
 public:
  // Resolves once, here: throws what `resolve` throws. Later failures leave the addresses as they
  // are. `changed` is called on the watch's thread when there are others.
  NameWatch(std::string target, Resolver resolve, std::function<void()> changed,
            std::chrono::milliseconds least_gap = std::chrono::seconds(1));
  ~NameWatch();
  NameWatch(const NameWatch&) = delete;
  NameWatch& operator=(const NameWatch&) = delete;

  // Asks again, soon: within `least_gap` of the last time, questions are put together.
  void Ask();

  // The addresses, if they have changed since they were last taken. Never empty.
  std::optional<std::vector<Address>> Take();

 private:
  void Watch();

  const std::string target_;
  const Resolver resolve_;
  const std::function<void()> changed_;
  const std::chrono::milliseconds least_gap_;

  std::mutex mu_;
  std::condition_variable asked_changed_;
  bool asked_ = false, stop_ = false;  // guarded by mu_
  std::vector<Address> addresses_;     // guarded by mu_
  std::atomic<bool> fresh_ = true;     // addresses_ has not been taken
  std::thread thread_;                 // made by the first Ask()
};

}  // namespace castor::load
