#include "client/load/statistics/rank_test.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace castor::load {
namespace {

struct Pair {
  double a = 0, b = 0;  // how many of each are equal to one value
};

// Groups of equal values, from the least.
template <typename Groups>
RankTest Test(const Groups& groups) {
  double n_a = 0, n_b = 0, wins = 0, ties = 0;
  for (const auto& [value, pair] : groups) {
    wins += pair.b * (n_a + pair.a / 2);
    n_a += pair.a;
    n_b += pair.b;
    const double equal = pair.a + pair.b;
    ties += equal * (equal * equal - 1);
  }
  RankTest test;
  if (n_a == 0 || n_b == 0) return test;
  test.b_above_a = wins / (n_a * n_b);
  const double n = n_a + n_b;
  const double variance = n_a * n_b / 12 * (n + 1 - (n > 1 ? ties / (n * (n - 1)) : 0));
  if (variance <= 0) return test;  // all are equal
  const double distance = std::max(0.0, std::abs(wins - n_a * n_b / 2) - 0.5);
  test.p_value = std::erfc(distance / std::sqrt(2 * variance));
  return test;
}

}  // namespace

RankTest MannWhitney(const std::vector<double>& a, const std::vector<double>& b) {
  std::map<double, Pair> groups;
  for (const double value : a) groups[value].a += 1;
  for (const double value : b) groups[value].b += 1;
  return Test(groups);
}

RankTest MannWhitney(const Histogram& a, const Histogram& b) {
  std::map<int, Pair> groups;
  for (const auto& [index, count] : a.Buckets()) groups[index].a += static_cast<double>(count);
  for (const auto& [index, count] : b.Buckets()) groups[index].b += static_cast<double>(count);
  return Test(groups);
}

}  // namespace castor::load
