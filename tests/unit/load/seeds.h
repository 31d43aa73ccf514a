// A fresh seed for each run of a test, printed so that a failure can be repeated.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace castor::load {

// CASTOR_TEST_SEED, if set.
inline uint64_t FreshSeed() {
  const char* const given = std::getenv("CASTOR_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::printf("CASTOR_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace castor::load
