// The token of a run's requests, which a file may change while lanes send.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "client/token.h"

namespace castor::load {

// Thread-safe. One thread looks at the file now and then, so that lanes need not.
class CurrentToken {
 public:
  CurrentToken(std::string token, std::string file) : source_(std::move(token), std::move(file)) {}

  // Looks at the file if that was a while ago. An error as long as there was no token in it.
  absl::Status Refresh() {
    absl::StatusOr<std::string> header = source_.Header();
    if (!header.ok()) return header.status();
    const std::lock_guard<std::mutex> lock(mu_);
    if (*header == header_) return absl::OkStatus();
    header_ = *std::move(header);
    version_.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  // Another number once there is another token.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }

  // The value of metadata `authorization`; "": none.
  std::string header() const {
    const std::lock_guard<std::mutex> lock(mu_);
    return header_;
  }

 private:
  client::TokenSource source_;
  std::atomic<uint64_t> version_ = 0;
  mutable std::mutex mu_;
  std::string header_;  // guarded by mu_
};

}  // namespace castor::load
