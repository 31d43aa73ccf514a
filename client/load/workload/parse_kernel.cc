#include <algorithm>

#include "client/load/workload/parse_parts.h"

namespace castor::load {
namespace {

// One of `names`, or empty.
void ReadName(TomlTable& table, std::string_view key, const std::vector<std::string>& names,
              std::string* value) {
  size_t index = names.size();
  table.Choice(key, names, &index);
  if (index < names.size()) *value = names[index];
}

void ReadClusters(TomlTable& table, cli::KernelFlags* kernel) {
  table.Whole("clusters", 1, 65536, &kernel->clusters);
  table.Whole("iterations", 1, 1000, &kernel->iterations);
  table.Whole("bits", 1, 64, &kernel->bits);
  table.Flag("hash-bias", &kernel->hash_bias);
  ReadName(table, "query-clustering", cli::QueryClusterings(), &kernel->query_clustering);
  table.Seed("seed", &kernel->kernel_seed);
}

void ReadCast(TomlTable& table, cli::KernelFlags* kernel) {
  table.Text("surrogates", &kernel->surrogates);
  table.Text("layer", &kernel->layer);
  if (!kernel->surrogates.empty() && !kernel->layer.empty()) {
    table.Fail("layer", "surrogates and layer exclude each other");
  }
  table.Text("gate", &kernel->gate);
  ReadName(table, "clustering", {"top-k", "single-assignment"}, &kernel->clustering);
  table.Whole("cluster-size", 1, INT32_MAX, &kernel->cluster_size);
  ReadName(table, "attention-function", {"softmax", "laplace"}, &kernel->attention_function);
  ReadName(table, "gate-temperature", {"softplus1", "none"}, &kernel->gate_temperature);
  ReadName(table, "head-clustering", {"shared", "per-head"}, &kernel->head_clustering);
}

void ReadAutomatic(TomlTable& table, cli::KernelFlags* kernel) {
  table.Texts("allow", &kernel->allowed);
  const std::vector<std::string> names = cli::KernelNames();
  for (const std::string& name : kernel->allowed) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      table.Refuse("allow", *table.Find("allow"),
                   "an array of kernels' names, '" + name + "' is none");
    }
  }
  table.Real("max-relative-error", {0, 1}, &kernel->max_relative_error);
  table.Real("min-cosine", {0, 1}, &kernel->min_cosine);
}

}  // namespace

void ReadKernel(TomlTable& table, cli::KernelFlags* kernel) {
  std::vector<std::string> names = cli::KernelNames();
  names.push_back("automatic");
  const toml::node* node = table.Find("kernel");
  if (node == nullptr) return;
  if (!node->is_table()) {
    ReadName(table, "kernel", names, &kernel->kernel);
    return;
  }
  TomlTable own = table.Sub("kernel");
  ReadName(own, "name", names, &kernel->kernel);
  if (kernel->exact()) own.Flag("causal", &kernel->causal);
  if (kernel->kernel == "clustered" || kernel->kernel == "improved-clustered") {
    ReadClusters(own, kernel);
  }
  if (kernel->kernel == "improved-clustered") {
    own.Whole("topk", 1, 1024, &kernel->topk);
    ReadName(own, "rest-mass", cli::RestMasses(), &kernel->rest_mass);
  }
  if (kernel->kernel == "cast") ReadCast(own, kernel);
  if (kernel->kernel == "automatic") ReadAutomatic(own, kernel);
  own.RefuseOthers();
}

}  // namespace castor::load
