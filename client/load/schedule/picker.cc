#include "client/load/schedule/picker.h"

#include <algorithm>

namespace castor::load {

Picker::Picker(const Workload& workload, double verify_share, uint64_t seed, uint64_t stream)
    : verify_share_(verify_share),
      class_random_(MixSeed(MixSeed(seed, 1), stream)),
      cancel_random_(MixSeed(MixSeed(seed, 2), stream)),
      verify_random_(MixSeed(MixSeed(seed, 3), stream)) {
  double sum = 0;
  for (const ClassSpec& spec : workload.classes) {
    Class& made = classes_.emplace_back();
    made.weight_below = sum += spec.weight;
    made.cancel_share = spec.cancel_share;
    made.cancel_after_ns = spec.cancel_after.count();
    made.payloads = static_cast<uint32_t>(spec.payloads);
    made.next = static_cast<uint32_t>(stream % made.payloads);
  }
}

Planned Picker::Next() {
  const double drawn = Uniform(class_random_) * classes_.back().weight_below;
  const auto found =
      std::lower_bound(classes_.begin(), classes_.end() - 1, drawn,
                       [](const Class& cls, double value) { return cls.weight_below < value; });
  const uint32_t payload = found->next;
  found->next = payload + 1 == found->payloads ? 0 : payload + 1;
  return Next(static_cast<uint16_t>(found - classes_.begin()), payload);
}

Planned Picker::Next(uint16_t cls, uint32_t payload) {
  const Class& of = classes_[cls];
  Planned planned = {.payload = payload, .cls = cls};
  // Uniform is above 0, so a share of 0 is never met and a share of 1 always.
  if (of.cancel_share > 0 && Uniform(cancel_random_) <= of.cancel_share) {
    planned.cancel_after_ns = of.cancel_after_ns;
  }
  planned.verify = verify_share_ > 0 && Uniform(verify_random_) <= verify_share_;
  return planned;
}

}  // namespace castor::load
