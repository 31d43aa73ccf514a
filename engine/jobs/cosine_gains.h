// How far an encoder's vectors turn for what its layers lose: learned by comparing approximate runs
// with exact ones of the same request, and used to estimate the cosine of those that are not
// compared.
//
// Layers lose little, so a vector turns in proportion: 1 - cosine is a gain times the sequence's
// loss (encoder/row_probe.h). Gains differ between sequences by a factor that is about log-normal.
// What is learned is the mean and the variance of its logarithm, for each tenant, model, way of
// pooling and kernel, and of sequences that are alike: of about the same length and loss, and of
// tokens or of embeddings, which may be like no token's. Of a kernel its name is enough: the
// parameters that automatic tries show in the loss.
//
// Plain numbers; not thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/jobs/learned_by_tenant.h"
#include "engine/request.h"

namespace castor {

// The cosine of two vectors in double precision: 1 for two vectors of zeros, 0 for one; NaN if a
// value is not finite.
double CosineOf(std::span<const float> a, std::span<const float> b);

// The distance of two vectors of length 1 with this cosine, and back: what a relative error is to
// attention. NaN stays NaN.
double DistanceOf(double cosine);
double CosineAt(double distance);

class CosineGains {
 public:
  // Comparisons of sequences after which there are estimates.
  static constexpr int kFewest = 6;

  // What all sequences of a request share.
  struct Kind {
    uint64_t generation = 0;  // of the model
    Pooling pooling = Pooling::kMean;
    int64_t dimensions = 0;
    KernelName kernel = KernelName::kVanilla;
    bool embeddings = false;  // brought by the request

    auto operator<=>(const Kind&) const = default;
  };

  struct Estimate {
    double cosine = 0;    // NaN: there are too few comparisons, or a loss is not finite
    int comparisons = 0;  // of sequences that it goes by, at least; 0 where nothing is lost
  };

  // The least cosine of the sequences with these offsets and losses. It is meant to be too high for
  // one request in 40: for one sequence the gain is taken as the mean and two standard deviations,
  // for several as many more as the largest of so many needs.
  Estimate LeastCosine(const std::string& tenant, const Kind& kind,
                       std::span<const int32_t> cu_seqlens, std::span<const float> losses) const;

  // Sequences with these losses turned out to have these cosines.
  void Learn(const std::string& tenant, const Kind& kind, std::span<const int32_t> cu_seqlens,
             std::span<const float> losses, std::span<const double> cosines);

 private:
  struct Key {
    Kind kind;
    int length = 0;  // the bits of the number of tokens
    int loss = 0;    // its power of eight

    auto operator<=>(const Key&) const = default;
  };
  static Key KeyOf(const Kind& kind, int32_t tokens, float loss);

  struct Gain {
    int seen = 0;
    double mean = 0;  // of the logarithm
    double variance = 0;

    double Above(double deviations) const;
  };

  LearnedByTenant<Key, Gain> gains_{1024};
};

}  // namespace castor
