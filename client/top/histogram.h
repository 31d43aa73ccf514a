// What a Prometheus histogram counted during an interval.
#pragma once

#include <map>
#include <optional>

namespace castor::top {

class Histogram {
 public:
  // That `count` values were in the bucket that ends at `bound`, which may be infinity.
  void Add(double bound, double count);
  void Add(const Histogram& other);

  double count() const { return count_; }

  // As PromQL's histogram_quantile has it: linear within a bucket, the first of which starts at 0,
  // and the greatest finite bound where the value is beyond it. nullopt of no values.
  std::optional<double> Quantile(double quantile) const;

  // Whether a quantile is only known to be beyond the greatest finite bound.
  bool IsBeyond(double quantile) const;

 private:
  std::map<double, double> counts_;  // of each bucket for itself, by its bound
  double count_ = 0;
};

}  // namespace castor::top
