#include "server/metrics/exemplars.h"

#include <algorithm>

namespace castor::server {

void Exemplars::Add(double value, const TraceContext& of) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const Exemplar exemplar{.value = value, .at = std::chrono::system_clock::now(), .of = of};
  MutexLock lock(mu_);
  last_[static_cast<size_t>(bucket)] = exemplar;
}

std::vector<std::optional<Exemplar>> Exemplars::Read() const {
  MutexLock lock(mu_);
  return last_;
}

}  // namespace castor::server
