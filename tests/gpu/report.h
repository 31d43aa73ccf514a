// The GPU check's output: one line per check, and the number of failures.
#pragma once

#include <cstdio>
#include <string>

namespace castor::gpu {

// "1.2e-07"
inline std::string Scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

class Report {
 public:
  // SelectsNextCase() is true for every `every`-th case.
  explicit Report(int every) : every_(every) {}

  bool SelectsNextCase() { return asked_++ % every_ == 0; }

  void Section(const std::string& title) { std::printf("\n== %s\n", title.c_str()); }

  void Note(const std::string& text) { std::printf("     %s\n", text.c_str()); }

  // Returns `ok`, so that a caller can abandon a case.
  bool Check(bool ok, const std::string& what) {
    std::printf("%s %s\n", ok ? "ok  " : "FAIL", what.c_str());
    std::fflush(stdout);
    ++(ok ? passed_ : failed_);
    return ok;
  }

  int passed() const { return passed_; }
  int failed() const { return failed_; }

 private:
  const int every_;
  int asked_ = 0;
  int passed_ = 0;
  int failed_ = 0;
};

}  // namespace castor::gpu
