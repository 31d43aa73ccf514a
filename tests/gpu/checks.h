// The parts of the GPU check. Each reports what it compares; none stops at a failure.
#pragma once

#include <cstdint>
#include <string>

#include "engine/device/device.h"
#include "engine/engine.h"
#include "tests/gpu/report.h"

namespace castor::gpu {

// CudaDevice and CpuDevice through the Device interface on random ragged batches: against a float64
// reference, alone and in a batch, and with two batches in flight.
void CheckAttention(Device& device, Device& cpu, uint32_t seed, Report& report);

// Batches that the GPU's device cuts into as many launches as it can, with other batches at its
// checkpoints, against the same batches uncut, byte for byte. Needs a GPU.
void CheckCuts(uint32_t seed, Report& report);

// CAST's kernels stage by stage against the twin. Needs a GPU.
void CheckCastKernels(uint32_t seed, Report& report);

// CAST through the Device interface, with shared and own surrogate tokens, against the twin.
void CheckCast(Device& device, uint32_t seed, Report& report);

// Clustered and improved clustered attention's kernels stage by stage against the twins, alone and
// under a CUDA graph. Needs a GPU.
void CheckClusteredKernels(uint32_t seed, Report& report);

// The same kernels through the Device interface on larger problems, against the CPU; alone and in a
// batch.
void CheckClustered(Device& device, Device& cpu, uint32_t seed, Report& report);

// The device memory of random batches against its prediction.
void CheckMemory(Device& device, uint32_t seed, Report& report);

// A small random encoder model on `device` against the same model on the CPU, through the engine.
void CheckEncoder(const std::string& device, uint32_t seed, Report& report);

// Exact attention through the engine against a bare call of LibTorch's, H=8, d=64, bf16.
void TimeAttention(const std::string& device, Report& report);

// Clustered, improved clustered and CAST attention through the engine, from 4K to 64K tokens, as
// speedups over the bare call. Reports them with the project's goals, how the times grow, and the
// memory used.
void TimeApproximate(const std::string& device, Report& report);

// Shared by both timings. All run on device cuda:0 and need it.
struct EngineTimes {
  double compute_us = 0;  // 0: it did not run
  double copy_in_us = 0;
  double copy_out_us = 0;
  double total_us = 0;  // Submit to completion
  std::string backend;
};

// Microseconds of a bare scaled_dot_product_attention, bf16, 8 heads of 64, one sequence.
double TimeBareCall(int64_t tokens);

// Medians over requests of the same problem with `kernel`, one at a time.
EngineTimes TimeEngine(Engine& engine, int64_t tokens, const Kernel& kernel);

}  // namespace castor::gpu
