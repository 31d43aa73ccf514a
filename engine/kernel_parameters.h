// Each kernel's parameters except its tensors, named as on the wire. Requests are checked against
// their ranges, and all requests of a batch have equal parameters. Constants; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "engine/request.h"

namespace castor {

// The error for a parameter of the hash with another clustering.
inline constexpr std::string_view kOnlyHash = "is for clustering HASH; QUERY_SPACE hashes nothing";

struct ParameterRange {
  int64_t least;
  int64_t most;
};

template <typename Kernel, typename Value>
struct Parameter {
  std::string_view name;
  Value Kernel::*member;
  std::optional<ParameterRange> range = std::nullopt;  // for integers
};
template <typename Kernel, typename Value>  // clang 16 cannot deduce from an aggregate
Parameter(std::string_view, Value Kernel::*, std::optional<ParameterRange> = std::nullopt)
    -> Parameter<Kernel, Value>;

// A kernel without parameters has an empty tuple; one without an overload does not compile.
constexpr auto ParametersOf(const Vanilla&) {
  return std::tuple{Parameter{"causal", &Vanilla::causal}};
}

constexpr auto ParametersOf(const Clustered&) {
  return std::tuple{Parameter{"clusters", &Clustered::clusters, ParameterRange{1, 65536}},
                    Parameter{"iterations", &Clustered::iterations, ParameterRange{1, 1000}},
                    Parameter{"bits", &Clustered::bits, ParameterRange{1, 64}},
                    Parameter{"hash_bias", &Clustered::hash_bias},
                    Parameter{"seed", &Clustered::seed},
                    Parameter{"clustering", &Clustered::clustering}};
}

constexpr auto ParametersOf(const ImprovedClustered& kernel) {
  return std::tuple_cat(
      ParametersOf(static_cast<const Clustered&>(kernel)),
      std::tuple{Parameter{"topk", &ImprovedClustered::topk, ParameterRange{1, 1024}},
                 Parameter{"rest_mass", &ImprovedClustered::rest_mass},
                 Parameter{"rest_groups", &ImprovedClustered::rest_groups, ParameterRange{1, 64}}});
}

constexpr auto ParametersOf(const Cast&) {
  return std::tuple{Parameter{"clustering", &Cast::clustering},
                    Parameter{"cluster_size", &Cast::cluster_size},
                    Parameter{"attention_function", &Cast::attention_function},
                    Parameter{"gate_temperature", &Cast::gate_temperature},
                    Parameter{"head_clustering", &Cast::head_clustering}};
}

// Calls visit(parameter, value) for each parameter.
template <typename Kernel, typename Visit>
void ForEachParameter(const Kernel& kernel, Visit visit) {
  std::apply([&](const auto&... parameter) { (visit(parameter, kernel.*parameter.member), ...); },
             ParametersOf(kernel));
}

}  // namespace castor
