#include "engine/scheduling/company.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/base/attributes.h"

namespace castor {
namespace {

// Of what was learned, the part that one more outcome replaces.
constexpr double kRate = 1.0 / 8;

// Below this, a sleeping thread wakes up too late for the wait to be worth anything.
constexpr double kLeastUs = 100;

// One that has not come by then, in deviations from when it mostly comes, will not come in time.
constexpr double kDeviations = 4;

}  // namespace

void CompanyForecast::Experience::CameAfter(double us) {
  if (share == 0) {
    gap_us = us;
    deviation_us = us / 2;
  } else {
    deviation_us += kRate * (std::abs(us - gap_us) - deviation_us);
    gap_us += kRate * (us - gap_us);
  }
  share += kRate * (1 - share);
}

void CompanyForecast::Experience::NobodyCame() { share -= kRate * share; }

// Up to eight requests each count is a kind, then each power of two.
size_t CompanyForecast::KindOf(size_t requests) {
  constexpr size_t kSingle = 8;
  if (requests <= kSingle) return std::max<size_t>(requests, 1) - 1;
  const auto powers = static_cast<size_t>(std::bit_width(requests - 1)) - 4;
  return std::min(kSingle + powers, kKinds - 1);
}

// The key that was used longest ago makes room. Never inlined into what is noexcept: see
// batcher.cc.
ABSL_ATTRIBUTE_NOINLINE
CompanyForecast::Key& CompanyForecast::Find(const std::string& name) {
  const auto found = keys_.find(name);
  if (found == keys_.end() && keys_.size() >= kMostKeys) {
    keys_.erase(std::min_element(keys_.begin(), keys_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  Key& key = found == keys_.end() ? keys_[name] : found->second;
  key.used = ++uses_;
  return key;
}

// Nobody came in time, if that is known by now. A decision that another has overtaken tells
// nothing.
void CompanyForecast::Settle(Key& key, TimePoint now) {
  if (!key.last.open) return;
  key.last.open = false;
  if (Microseconds(key.last.at, now) < key.last.within_us) return;
  key.experience[key.last.kind].NobodyCame();
}

double CompanyForecast::WaitUs(const std::string& name, const Batch& batch,
                               TimePoint now) noexcept {
  const auto requests = static_cast<double>(batch.requests);
  // The longest wait that pays: k (g + o) = B - g.
  const double within_us = (batch.once_us - batch.own_us) / (requests + 1);
  if (!(within_us >= kLeastUs)) return 0;
  Key& key = Find(name);
  Settle(key, now);
  key.last = {.at = now, .within_us = within_us, .kind = KindOf(batch.requests), .open = true};
  const Experience& known = key.experience[key.last.kind];
  const double wait_us =
      std::min(within_us, known.gap_us + kDeviations * known.deviation_us + kLeastUs);
  const double gain_us = batch.once_us - batch.own_us - (requests + 1) * known.gap_us;
  const double loss_us = requests * wait_us;
  return known.share * gain_us > (1 - known.share) * loss_us ? wait_us : 0;
}

void CompanyForecast::Came(const std::string& name, TimePoint now) noexcept {
  const auto found = keys_.find(name);
  if (found == keys_.end() || !found->second.last.open) return;
  Key& key = found->second;
  const double us = Microseconds(key.last.at, now);
  if (us >= key.last.within_us) return Settle(key, now);
  key.last.open = false;
  key.experience[key.last.kind].CameAfter(us);
}

}  // namespace castor
