// Trials drawn at random, as requests might be: they tell how a kernel's terms add up where trials
// that were made to tell them apart do not.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>

#include "engine/attention/cost/cost_model.h"
#include "engine/attention/variants.h"
#include "engine/calibration/stopwatch.h"

namespace castor {

class RandomTrials {
 public:
  // Trials that `model` expects to take at most `most_us`, of some `tokens` tokens or fewer, with
  // options beyond the papers where `variants` has them. The same ones each time, for the same
  // model.
  RandomTrials(const attention::CostModel& model, std::span<const attention::Variant> variants,
               int64_t tokens, double most_us)
      : model_(model), variants_(variants), tokens_(tokens), most_us_(most_us) {}

  // nullopt if even one token takes too long, or the model does not know the kernel.
  std::optional<Trial> Draw(KernelName kernel, DType dtype);

 private:
  int64_t Uniform(int64_t least, int64_t most);
  int64_t Spread(int64_t least, int64_t most);
  bool Chance(int percent) { return Uniform(0, 99) < percent; }
  int64_t Dim();
  std::vector<int32_t> Lengths(int64_t sequences);
  Kernel Parameters(KernelName kernel, DType dtype);
  bool TooLong(const Trial& trial, DType dtype) const;

  const attention::CostModel& model_;
  const std::span<const attention::Variant> variants_;
  const int64_t tokens_;
  const double most_us_;
  std::mt19937 random_;  // with its default seed
};

}  // namespace castor
