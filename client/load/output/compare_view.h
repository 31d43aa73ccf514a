// What a comparison of two runs shows. How changes are judged is not decided here.
#pragma once

#include <string>
#include <vector>

namespace castor::load {

struct CompareRow {
  enum class Kind { kDuration, kRate, kShare };  // of values: ns, per second, 0..1
  enum class Judgement { kBetter, kWorse, kSame };

  std::string cls, metric;  // "interactive", "p99"
  Kind kind = Kind::kDuration;
  double a = 0, b = 0;
  // (b - a) / a, of shares b - a, and its confidence interval. Where they are not finite, none is
  // shown.
  double change = 0, low = 0, high = 0;
  Judgement judgement = Judgement::kSame;
  std::string verdict = "";  // "regression", "unclear"; a word or a sentence
};

struct CompareView {
  std::string name_a = "A", name_b = "B";  // such as the files' names
  std::string headline = "";               // "2 of 8 figures are worse"
  bool worse = false;                      // marks the headline
  double confidence = 0.95;                // of the intervals
  std::vector<std::string> warnings = {};  // "the workloads differ", "run A is INVALID: ..."
  std::vector<CompareRow> rows = {};       // those of a class stand together
};

}  // namespace castor::load
