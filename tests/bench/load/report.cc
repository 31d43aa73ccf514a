#include "tests/bench/load/report.h"

#include <cmath>
#include <cstdio>

namespace castor::bench {

std::string Figure(double value, std::string_view unit) {
  const double size = std::abs(value);
  const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 || size == 0 ? 2 : 3;
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f%s%.*s", decimals, value, unit.empty() ? "" : " ",
                static_cast<int>(unit.size()), unit.data());
  return text;
}

std::string Figures(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + Figure(value);
  return text;
}

std::string Whole(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f", value);
  return text;
}

void Report::PrintHead() {
  std::printf("| scenario | what | measured | bound | |\n|---|---|---|---|---|\n");
  std::fflush(stdout);
}

void Report::Row(const std::string& what, const std::string& measured, const std::string& bound,
                 std::string_view verdict) {
  std::printf("| %s | %s | %s | %s | %.*s |\n", scenario_.c_str(), what.c_str(), measured.c_str(),
              bound.c_str(), static_cast<int>(verdict.size()), verdict.data());
  std::fflush(stdout);
}

void Report::Verdict(const std::string& what, const std::string& measured, const std::string& bound,
                     bool pass) {
  ++(pass ? passed_ : missed_);
  Row(what, measured, bound, pass ? "pass" : "**miss**");
}

void Report::AtMost(const std::string& what, double value, double bound, std::string_view unit) {
  Verdict(what, Figure(value, unit), "≤ " + Figure(bound, unit), value <= bound);
}

void Report::AtLeast(const std::string& what, double value, double bound, std::string_view unit) {
  Verdict(what, Figure(value, unit), "≥ " + Figure(bound, unit), value >= bound);
}

void Report::Check(const std::string& what, bool holds, const std::string& measured) {
  Verdict(what, measured, "", holds);
}

void Report::Note(const std::string& what, const std::string& measured) {
  Row(what, measured, "", "");
}

void Report::Missing(const std::string& what, const std::string& why, const std::string& bound) {
  Verdict(what, why, bound, false);
}

}  // namespace castor::bench
