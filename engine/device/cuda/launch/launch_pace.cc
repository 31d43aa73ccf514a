#include "engine/device/cuda/launch/launch_pace.h"

#include <algorithm>
#include <cmath>

namespace castor {
namespace {

// Microseconds for a million multiply-adds: 100 TFLOP/s in half types, 20 in float32.
constexpr double kHalfGuess = 0.02;
constexpr double kFloat32Guess = 0.1;

// Shorter runs do not show the pace: launches and idle multiprocessors are most of their time.
constexpr double kShortestUs = 500;

// How far a measurement counts as off, since the GPU may have waited, for instance for a plan that
// cuDNN compiled; and how far all of them together lead from the guess.
constexpr double kMostOff = 4;
constexpr double kMostLearned = 1024;

}  // namespace

LaunchPace::LaunchPace(DType dtype)
    : first_guess_(dtype == DType::kFloat32 ? kFloat32Guess : kHalfGuess),
      us_per_unit_(first_guess_) {}

void LaunchPace::Learn(double work, double us) {
  if (!(work > 0 && us >= kShortestUs)) return;
  // Half of the way, on a logarithmic scale.
  const double off = std::clamp(us / work / us_per_unit_, 1 / kMostOff, kMostOff);
  us_per_unit_ = std::clamp(us_per_unit_ * std::sqrt(off), first_guess_ / kMostLearned,
                            first_guess_ * kMostLearned);
}

}  // namespace castor
