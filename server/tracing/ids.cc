#include "server/tracing/ids.h"

#include <cmath>
#include <cstring>
#include <random>

namespace castor::server {
namespace {

constexpr int kRandomBits = 56;
constexpr uint64_t kAll = uint64_t{1} << kRandomBits;

uint64_t Seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// The finisher of SplitMix64: a bijection that looks like noise.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t Next() {
  thread_local uint64_t state = Seed();
  state += 0x9e3779b97f4a7c15;
  return Mix(state);
}

// Never zero: that is no id.
uint64_t Nonzero(uint64_t x) { return x == 0 ? 1 : x; }

}  // namespace

TraceId NewTraceId() {
  const uint64_t halves[] = {Nonzero(Next()), Next()};
  TraceId id;
  std::memcpy(id.data(), halves, sizeof(halves));
  return id;
}

SpanId NewSpanId() {
  const uint64_t random = Nonzero(Next());
  SpanId id;
  std::memcpy(id.data(), &random, sizeof(random));
  return id;
}

TraceContext BatchContext(uint64_t seed, uint64_t batch) {
  const uint64_t words[] = {Nonzero(Mix(seed ^ Mix(3 * batch))), Mix(seed ^ Mix(3 * batch + 1))};
  const uint64_t span = Nonzero(Mix(seed ^ Mix(3 * batch + 2)));
  TraceContext context{.sampled = true};
  std::memcpy(context.trace.data(), words, sizeof(words));
  std::memcpy(context.span.data(), &span, sizeof(span));
  return context;
}

uint64_t NewBatchSeed() { return Seed(); }

Sampler::Sampler(double share)
    : rejected_(static_cast<uint64_t>(std::llround((1 - share) * static_cast<double>(kAll)))) {}

bool Sampler::Takes(const std::optional<TraceContext>& parent, const TraceId& trace) const {
  if (rejected_ == kAll) return false;
  if (parent.has_value()) return parent->sampled;
  uint64_t random = 0;
  for (size_t i = trace.size() - kRandomBits / 8; i < trace.size(); ++i) {
    random = (random << 8) | trace[i];
  }
  return random >= rejected_;
}

}  // namespace castor::server
