// Random numbers from a seed that a failing test prints: the same in every run, unless
// CASTOR_TEST_SEED in the environment names another, as tests/nightly.sh does.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace castor {

inline uint32_t TestSeed() {
  const char* const given = std::getenv("CASTOR_TEST_SEED");
  return given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : 1;
}

// How many of `count` rounds of a long test to run: all with a seed from outside, a quarter in each
// change's tests.
inline int Rounds(int count) {
  return std::getenv("CASTOR_TEST_SEED") != nullptr ? count : (count + 3) / 4;
}

// A fixture's second base: a seed, its generator, and a trace that names it.
class Seeded {
 protected:
  Seeded()
      : seed_(TestSeed()),
        random_(seed_),
        trace_(__FILE__, __LINE__, "seed " + std::to_string(seed_)) {}

  // Uniform in [low, high], both included.
  int64_t Uniform(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  int UpTo(int most) { return static_cast<int>(Uniform(1, most)); }

  const uint32_t seed_;
  std::mt19937 random_;

 private:
  const ::testing::ScopedTrace trace_;
};

}  // namespace castor
