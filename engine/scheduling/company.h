// Whether a batch should wait for company: further requests that may share it.
//
// A batch of k requests takes B + k o: what it pays once, and each its own. If one more comes after
// a time g, to wait for it delays the k by g + o each. That one gains B - g: it would have to wait
// for the k otherwise, and pay B again. So waiting pays in latency, and spares the device B, while
//
//   k (g + o) < B - g
//
// Whether and when another comes is learned, for each batch key and k, from what came after earlier
// decisions, whichever way they went: callers that send their next request once they have an answer
// come soon after a batch, a single caller never does, and independent ones as often as their rate
// says. A batch that has company as often as that pays waits; on an idle engine none does.
//
// Not thread-safe. Functions that change it are noexcept: without memory for a node the process
// ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "engine/base/time.h"

namespace castor {

class CompanyForecast {
 public:
  // What would run if the batch began now.
  struct Batch {
    size_t requests = 0;
    double once_us = 0;  // B
    double own_us = 0;   // k o: of all of them
  };

  // For how long the batch should wait for one more, in microseconds from now; 0: not at all. Each
  // call is a decision from which is learned.
  double WaitUs(const std::string& key, const Batch& batch, TimePoint now) noexcept;

  // A request with this key has come.
  void Came(const std::string& key, TimePoint now) noexcept;

  // How many keys are remembered.
  size_t keys() const { return keys_.size(); }

 private:
  // What has come after decisions of one kind.
  struct Experience {
    double share = 0;         // of decisions after which one came in time
    double gap_us = 0;        // until then, on average
    double deviation_us = 0;  // from that

    void CameAfter(double us);
    void NobodyCame();
  };
  // A decision whose outcome is not known yet.
  struct Decision {
    TimePoint at{};
    double within_us = 0;  // what comes by then was worth waiting for
    size_t kind = 0;
    bool open = false;
  };
  static constexpr size_t kKinds = 12;
  struct Key {
    std::array<Experience, kKinds> experience{};
    Decision last = {};
    uint64_t used = 0;  // when: a count of uses
  };

  static size_t KindOf(size_t requests);
  Key& Find(const std::string& name);
  void Settle(Key& key, TimePoint now);

  static constexpr size_t kMostKeys = 256;

  std::unordered_map<std::string, Key> keys_;
  uint64_t uses_ = 0;
};

}  // namespace castor
