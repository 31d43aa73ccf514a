// Parses the benchmarks' names of a clustered kernel with its parameters: clustered-C, improved-C
// (top-k 32) or improved-C-K. Options follow a plus sign: q, clusters of the queries themselves;
// q2, with that number of updates; m, each query's own mass of the rest. For example
// improved-25-48+q2m.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/attention/parameters.h"
#include "engine/request.h"
#include "tests/bench/command_line.h"

namespace castor::bench {

// A whole number from 1 on; `what` is named where it is none.
inline int32_t WholeNumber(std::string_view text, const std::string& what) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) {
    Die(what + ": '" + std::string(text) + "' is not a whole number from 1 on");
  }
  return number;
}

inline void ReadNotedOptions(std::string_view options, const std::string& name,
                             Clustered* clustered, ImprovedClustered* improved) {
  while (!options.empty()) {
    const char option = options.front();
    options.remove_prefix(1);
    if (option == 'q') {
      const size_t digits = std::min(options.find_first_not_of("0123456789"), options.size());
      clustered->clustering = Clustered::Clustering::kQuerySpace;
      clustered->iterations = digits == 0 ? DefaultIterations(clustered->clustering)
                                          : WholeNumber(options.substr(0, digits), name);
      options.remove_prefix(digits);
    } else if (option == 'm' && improved != nullptr) {
      improved->rest_mass = ImprovedClustered::RestMass::kQuery;
    } else {
      Die("kernel '" + name + "' has an option other than q, and m of improved");
    }
  }
}

// Ends the program where `name` is none of them.
inline Kernel KernelNoted(const std::string& name) {
  const size_t plus = std::min(name.find('+'), name.size());
  const std::string_view text = std::string_view(name).substr(0, plus);
  const std::string_view options = std::string_view(name).substr(std::min(plus + 1, name.size()));
  const size_t dash = text.find('-');
  const std::string_view kind = text.substr(0, dash);
  const std::string_view numbers = dash == std::string_view::npos ? "" : text.substr(dash + 1);
  const size_t second = numbers.find('-');
  Kernel kernel;
  if (kind == "clustered" && second == std::string_view::npos) {
    Clustered clustered;
    clustered.clusters = WholeNumber(numbers, name);
    ReadNotedOptions(options, name, &clustered, nullptr);
    kernel = clustered;
  } else if (kind == "improved") {
    ImprovedClustered improved;
    improved.clusters = WholeNumber(numbers.substr(0, second), name);
    if (second != std::string_view::npos) {
      improved.topk = WholeNumber(numbers.substr(second + 1), name);
    }
    ReadNotedOptions(options, name, &improved, &improved);
    kernel = improved;
  } else {
    Die("kernel '" + name + "' is none of clustered-C, improved-C, improved-C-K");
  }
  if (const absl::Status s = attention::CheckParameters(kernel); !s.ok()) Die(s.ToString());
  return kernel;
}

}  // namespace castor::bench
