// The exemplars of a histogram: for each bucket the last sampled request that fell into it.
//
// Any thread. Only sampled requests come here, and scrapes: one short lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "engine/base/mutex.h"
#include "server/tracing/trace_context.h"

namespace castor::server {

struct Exemplar {
  double value = 0;
  std::chrono::system_clock::time_point at;
  TraceContext of;
};

class Exemplars {
 public:
  // `bounds`: the buckets' upper ones, ascending, without the last, infinite one.
  explicit Exemplars(const std::vector<double>& bounds)
      : bounds_(bounds), last_(bounds.size() + 1) {}

  void Add(double value, const TraceContext& of);

  // Of each bucket, the infinite one last.
  std::vector<std::optional<Exemplar>> Read() const;

 private:
  const std::vector<double> bounds_;

  mutable Mutex mu_;
  std::vector<std::optional<Exemplar>> last_ ABSL_GUARDED_BY(mu_);
};

}  // namespace castor::server
