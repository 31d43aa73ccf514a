// What the benchmark programs share: their command lines, and medians.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace castor::bench {

[[noreturn]] inline void Die(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

// Removes --NAME=VALUE from the arguments and returns VALUE, or `otherwise` if it is missing. Ends
// the program if that is empty.
inline std::string TakeFlag(std::string_view name, int* argc, char** argv,
                            std::string otherwise = "") {
  const std::string prefix = "--" + std::string(name) + "=";
  std::string value = std::move(otherwise);
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, prefix.size()) == prefix) {
      value = argument.substr(prefix.size());
    } else {
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  if (value.empty()) Die("the flag " + prefix + "... is needed");
  return value;
}

// The lines of a file. Ends the program if there are none.
inline std::vector<std::string> ReadTexts(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> texts;
  for (std::string line; std::getline(file, line);) texts.push_back(line);
  if (texts.empty()) Die("no texts in " + path);
  return texts;
}

// The median: the mean of the middle two for an even number of values; 0 for none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace castor::bench
