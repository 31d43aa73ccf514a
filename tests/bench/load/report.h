// The table of what was measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace castor::bench {

class Report {
 public:
  void PrintHead();

  // The rows that follow belong to this scenario.
  void Begin(std::string scenario) { scenario_ = std::move(scenario); }

  // A measured value against its bound.
  void AtMost(const std::string& what, double value, double bound, std::string_view unit);
  void AtLeast(const std::string& what, double value, double bound, std::string_view unit);
  // Something that holds or not.
  void Check(const std::string& what, bool holds, const std::string& measured);
  // A figure without a bound.
  void Note(const std::string& what, const std::string& measured);
  // What could not be measured counts as a miss.
  void Missing(const std::string& what, const std::string& why, const std::string& bound);

  int passed() const { return passed_; }
  int missed() const { return missed_; }

 private:
  void Row(const std::string& what, const std::string& measured, const std::string& bound,
           std::string_view verdict);
  void Verdict(const std::string& what, const std::string& measured, const std::string& bound,
               bool pass);

  std::string scenario_;
  int passed_ = 0;
  int missed_ = 0;
};

// Three significant digits or so: "0.123 ms", "45.6 %", "1234".
std::string Figure(double value, std::string_view unit = "");

// One after another: "0.123, 45.6".
std::string Figures(const std::vector<double>& values);

// A count: "1234".
std::string Whole(double value);

}  // namespace castor::bench
