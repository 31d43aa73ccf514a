// The variant table: device x kernel x dtype -> the implementation that runs it.
//
// An implementation is a row: on the CPU in its kernel's own file (vanilla_cpu.cc, ...), for CUDA
// in the module's variants_cuda.cc. Nothing else changes with it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "engine/attention/problem.h"
#include "engine/base/run_control.h"
#include "engine/request.h"

namespace castor::attention {

// One implementation. `run` computes all `problems`, which share `spec`; it is called on the
// device's engine thread, with the device's stream current. On the CPU, outputs are written when it
// returns; on CUDA, when the stream gets there. A status that ends the run at a checkpoint is
// returned unchanged, and the outputs are then unspecified.
struct Variant {
  KernelName kernel;
  std::string_view backend;  // "cpu-avx512", "cuda-flash": for reports and metrics
  bool (*supports)(const Spec& spec);
  absl::Status (*run)(const Spec& spec, std::span<const Problem> problems, RunControl& control);
  // The most memory in bytes that `run` takes for a problem with these offsets, without the tensors
  // and short lists of tasks. It counts as the device's memory, and CPU reports show it. Takes any
  // spec that the row supports and any offsets; Count::kMost for more than can be counted, or than
  // the kernel can index. A pure function; any thread may call it. nullptr: next to nothing.
  int64_t (*workspace_bytes)(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                             std::span<const int32_t> cu_seqlens_k) = nullptr;
};

// The CPU's rows, best first.
std::span<const Variant> CpuVariants();

// The first row that can run `spec`, or nullptr.
const Variant* FindVariant(std::span<const Variant> table, const Spec& spec);

// True if a row is of the kernel, even if it cannot run every spec.
bool HasKernel(std::span<const Variant> table, KernelName name);

// KERNEL_NOT_AVAILABLE, with the option's path on the wire, if no row runs `spec` because of an
// option of its kernel (OptionBeyondThePaper); OK for all else.
absl::Status CheckOption(std::span<const Variant> table, const Spec& spec);

// The CPU's rows of the variant table, one header for all: each kernel's *_cpu.cc defines its own.
std::span<const Variant> VanillaCpuVariants();
std::span<const Variant> ClusteredCpuVariants();
std::span<const Variant> CastCpuVariants();

// Vanilla attention computes this many heads, which share keys and values, as one head that has the
// queries of all of them. `spec.kernel` holds Vanilla.
int64_t HeadsTogether(const Spec& spec);

}  // namespace castor::attention
