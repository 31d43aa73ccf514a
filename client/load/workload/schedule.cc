#include "client/load/workload/schedule.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace castor::load {
namespace {

struct DrawLength {
  Random& random;

  int64_t operator()(const FixedLength& fixed) const { return fixed.length; }
  int64_t operator()(const UniformLength& uniform) const {
    const auto count = static_cast<uint64_t>(uniform.greatest - uniform.least) + 1;
    return uniform.least + static_cast<int64_t>(Below(count, random));
  }
  int64_t operator()(const LognormalLength& length) const {
    const double drawn = length.median * std::exp(length.sigma * Normal(random));
    return static_cast<int64_t>(std::clamp(std::floor(drawn + 0.5),
                                           static_cast<double>(length.least),
                                           static_cast<double>(length.greatest)));
  }
};

}  // namespace

int64_t Draw(const Length& length, Random& random) {
  return std::visit(DrawLength{random}, length);
}

Picker::Picker(const Workload& workload, double verify_share, uint64_t stream)
    : verify_share_(verify_share),
      class_random_(MixSeed(MixSeed(workload.seed, 1), stream)),
      cancel_random_(MixSeed(MixSeed(workload.seed, 2), stream)),
      verify_random_(MixSeed(MixSeed(workload.seed, 3), stream)) {
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
  Planned planned = {.payload = found->next,
                     .cls = static_cast<uint16_t>(found - classes_.begin())};
  found->next = found->next + 1 == found->payloads ? 0 : found->next + 1;
  // Uniform is in (0, 1], so a share of 0 is never met and a share of 1 always.
  if (found->cancel_share > 0 && Uniform(cancel_random_) <= found->cancel_share) {
    planned.cancel_after_ns = found->cancel_after_ns;
  }
  planned.verify = verify_share_ > 0 && Uniform(verify_random_) <= verify_share_;
  return planned;
}

std::vector<Planned> MakeSchedule(const Workload& workload, double verify_share) {
  const auto& load = std::get<OpenLoop>(workload.load);
  const double begin = -InSeconds(workload.warm_up), end = InSeconds(workload.duration);
  const double expected = load.rate * (end - begin);
  if (!(expected <= static_cast<double>(kMaxPlanned))) {
    throw std::runtime_error("the plan would have about " +
                             std::to_string(std::llround(std::min(expected, 1e18))) +
                             " requests, above the limit of " + std::to_string(kMaxPlanned) +
                             "; lower the rate or shorten the run");
  }
  Picker picker(workload, verify_share, 0);
  Random random(MixSeed(workload.seed, 0));
  std::vector<Planned> schedule;
  schedule.reserve(static_cast<size_t>(expected * 1.02) + 64);
  double due = 0;  // elapsed time in mean gaps
  for (int64_t i = 0;; ++i) {
    // A sum of constant gaps would drift, so count them.
    due = load.constant ? static_cast<double>(i) : due + Exponential(random);
    const double time = begin + due / load.rate;
    if (time >= end) return schedule;
    Planned planned = picker.Next();
    planned.at_ns = static_cast<int64_t>(std::floor(time * 1e9 + 0.5));
    schedule.push_back(planned);
  }
}

double Exponential(Random& random) { return -std::log(Uniform(random)); }

// Marsaglia's polar method. Drops the method's second value, so that draws have no state.
double Normal(Random& random) {
  while (true) {
    const double x = 2 * Uniform(random) - 1;
    const double y = 2 * Uniform(random) - 1;
    const double square = x * x + y * y;
    if (square < 1 && square > 0) return x * std::sqrt(-2 * std::log(square) / square);
  }
}

uint64_t MixSeed(uint64_t seed, uint64_t more) {
  uint64_t mixed = seed + 0x9e3779b97f4a7c15 * (more + 1);  // splitmix64
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

}  // namespace castor::load
