// The flags that choose an attention kernel and its parameters, for `attend` and `encode`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"

namespace castor::cli {

// Zeros and empty strings are left to the server's defaults.
struct KernelFlags {
  std::string kernel;  // empty: the server's, or the model's own
  bool causal = false;
  int32_t clusters = 0;
  int32_t iterations = 0;
  int32_t bits = 0;
  bool hash_bias = true;
  std::string query_clustering;
  uint64_t kernel_seed = 0;
  int32_t topk = 0;
  std::string rest_mass;
  std::string surrogates;  // .npy
  std::string layer;
  std::string gate;  // .npy
  std::string clustering;
  int32_t cluster_size = 0;
  std::string attention_function;
  std::string gate_temperature;
  std::string head_clustering;
  std::vector<std::string> allowed;
  double max_relative_error = 0;
  double min_cosine = 0;

  // Whether the kernel is exact attention, for which a check can be strict.
  bool exact() const { return kernel.empty() || kernel == "vanilla"; }
};

// The kernels' names as flags take them, in the wire's order: "vanilla", "improved-clustered".
std::vector<std::string> KernelNames();

// What --query-clustering and --rest-mass take, in the wire's order.
std::vector<std::string> QueryClusterings();
std::vector<std::string> RestMasses();

void AddKernelFlags(CLI::App* command, KernelFlags* flags);

// Throws for a flag on the command line that the kernel does not read, naming what it needs.
// `encode`: for encoders, not for attention.
void CheckKernelFlags(const CLI::App& command, const KernelFlags& flags, bool encode);

// Set the request's kernel. Read the files named in the flags; throw UsageError when they cannot.
void ApplyKernel(const KernelFlags& flags, v1::AttendRequest* request);
void ApplyKernel(const KernelFlags& flags, v1::EncodeRequest* request);

}  // namespace castor::cli
