// The parts of the GPU check. Each reports what it compared; none stops at a failure.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "tests/gpu/report.h"

namespace castor::gpu {

// CudaDevice and CpuDevice through the Device interface on random ragged batches: against a float64
// reference, alone against in a batch, and with two batches in flight.
void CheckAttention(Device& device, Device& cpu, uint32_t seed, Report& report);

// Each of our kernels against its CPU twin. Needs a GPU.
void CheckKernels(uint32_t seed, Report& report);

// Every row of the GPU's variant table that supports a problem, against the plainest one.
void CheckVariants(uint32_t seed, Report& report);

// CAST's kernels stage by stage against the twin. Needs a GPU.
void CheckCastKernels(uint32_t seed, Report& report);

// CAST through the Device interface, with shared and own surrogate tokens, against the twin.
void CheckCast(Device& device, uint32_t seed, Report& report);

// A small random encoder model on `device` against the same model on the CPU, through the engine.
void CheckEncoder(const std::string& device, uint32_t seed, Report& report);

// Exact attention through the engine against a bare call of LibTorch's, H=8, d=64, bf16.
void TimeAttention(const std::string& device, Report& report);

}  // namespace castor::gpu
