// Specs and kernels for tests, and their names in failure messages.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "engine/attention/problem.h"

namespace castor::attention {

// With the default scale; `surrogates` is CAST's number of clusters.
inline Spec MakeSpec(DType dtype, Kernel kernel, int64_t heads, int64_t head_dim, int64_t value_dim,
                     int64_t surrogates = 0) {
  Spec spec;
  spec.dtype = dtype;
  spec.heads = spec.kv_heads = heads;
  spec.head_dim = head_dim;
  spec.value_dim = value_dim;
  spec.surrogates = surrogates;
  spec.softmax_scale = 1 / std::sqrt(static_cast<double>(head_dim));
  spec.kernel = std::move(kernel);
  return spec;
}

inline Spec WithLogSumExp(Spec spec) {
  spec.log_sum_exp = true;
  return spec;
}

inline Spec WithKvHeads(Spec spec, int64_t kv_heads) {
  spec.kv_heads = kv_heads;
  return spec;
}

inline Clustered PlainClusters(int32_t clusters, uint64_t seed = 0) {
  Clustered kernel;
  kernel.clusters = clusters;
  kernel.seed = seed;
  return kernel;
}

inline ImprovedClustered ImprovedClusters(int32_t clusters, int32_t topk, uint64_t seed = 0) {
  ImprovedClustered kernel;
  kernel.clusters = clusters;
  kernel.topk = topk;
  kernel.seed = seed;
  return kernel;
}

// What clustered and improved clustered attention have in common.
inline Clustered& ClusteringOf(Spec& spec) {
  if (auto* improved = std::get_if<ImprovedClustered>(&spec.kernel)) return *improved;
  return std::get<Clustered>(spec.kernel);
}
inline const Clustered& ClusteringOf(const Spec& spec) {
  return ClusteringOf(const_cast<Spec&>(spec));
}

inline Cast CastOf(int32_t cluster_size, Cast::Clustering clustering = Cast::Clustering::kTopK) {
  Cast kernel;
  kernel.cluster_size = cluster_size;
  kernel.clustering = clustering;
  return kernel;
}

// One of the option combinations that a layer's configuration can ask for.
inline constexpr int kCastReadings = 16;
inline Cast CastReading(int reading, int32_t cluster_size = 0) {
  Cast kernel = CastOf(cluster_size);
  if ((reading & 1) != 0) kernel.clustering = Cast::Clustering::kSingleAssignmentTopK;
  if ((reading & 2) != 0) kernel.attention_function = Cast::AttentionFunction::kLaplace;
  if ((reading & 4) != 0) kernel.gate_temperature = Cast::GateTemperature::kNone;
  if ((reading & 8) != 0) kernel.head_clustering = Cast::HeadClustering::kPerHead;
  return kernel;
}

// "BFLOAT16 H=8 d=64 dv=32 causal"
inline std::string Describe(const Spec& spec) {
  std::string name = std::string(NameOf(spec.dtype)) + " H=" + std::to_string(spec.heads) +
                     " d=" + std::to_string(spec.head_dim) +
                     " dv=" + std::to_string(spec.value_dim);
  if (const auto* vanilla = std::get_if<Vanilla>(&spec.kernel)) {
    if (vanilla->causal) name += " causal";
  } else if (const auto* cast = std::get_if<Cast>(&spec.kernel)) {
    name += " Nc=" + std::to_string(spec.surrogates);
    if (cast->cluster_size > 0) name += " kappa=" + std::to_string(cast->cluster_size);
    if (cast->clustering == Cast::Clustering::kSingleAssignmentTopK) name += " single";
    if (cast->attention_function == Cast::AttentionFunction::kLaplace) name += " laplace";
    if (cast->gate_temperature == Cast::GateTemperature::kNone) name += " ungated";
    if (cast->head_clustering == Cast::HeadClustering::kPerHead) name += " per head";
  } else {
    name += " C=" + std::to_string(ClusteringOf(spec).clusters);
    const auto* const improved = std::get_if<ImprovedClustered>(&spec.kernel);
    if (improved != nullptr) name += " k=" + std::to_string(improved->topk);
    if (ClusteringOf(spec).clustering == Clustered::Clustering::kQuerySpace) name += " query space";
    if (WeighsRest(spec.kernel)) name += " groups=" + std::to_string(improved->rest_groups);
  }
  if (spec.kv_heads != spec.heads) name += " Hkv=" + std::to_string(spec.kv_heads);
  if (spec.value_is_key_prefix) name += " values in keys";
  if (spec.window.any()) {
    name += " window=" + std::to_string(spec.window.left) + "," + std::to_string(spec.window.right);
  }
  if (spec.window.always_visible > 0) {
    name += " visible=" + std::to_string(spec.window.always_visible);
  }
  if (spec.placed) name += " placed";
  if (spec.softcap > 0) name += " softcap=" + std::to_string(spec.softcap);
  if (spec.key_bias_heads > 0) name += " key_bias=" + std::to_string(spec.key_bias_heads);
  if (spec.bias.reach >= 0) name += " reach=" + std::to_string(spec.bias.reach);
  if (spec.bias.slopes != nullptr) name += " slopes";
  return name;
}

}  // namespace castor::attention
