#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_runtime_api.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/cuda/pool_rows.h"
#include "engine/kernels/pool_rows.h"
#include "tests/gpu/checks.h"
#include "tests/support/attention/compare.h"
#include "tests/support/cuda/device_memory.h"

namespace castor::gpu {
namespace {

using kernels::Element;
using kernels::FlagNonFinite;
using kernels::PoolRows;

std::vector<int64_t> RandomOffsets(std::mt19937& random, int sequences, int longest) {
  std::vector<int64_t> offsets = {0};
  for (int s = 0; s < sequences; ++s) offsets.push_back(offsets.back() + 1 + random() % longest);
  return offsets;
}

template <typename T>
void CheckPooling(Element element, const std::string& type, std::mt19937& random, Report& report) {
  double worst = 0;
  bool ran = true;
  for (int round = 0; round < 40; ++round) {
    const int64_t hidden = 1 + random() % 1100;
    const std::vector<int64_t> offsets =
        RandomOffsets(random, 1 + random() % 60, round % 4 == 0 ? 600 : 40);
    std::vector<T> rows(offsets.back() * hidden);
    std::normal_distribution<float> normal;
    for (T& value : rows) value = static_cast<T>(normal(random));
    PoolRows problem;
    problem.element = element;
    problem.row_stride = hidden;
    problem.sequences = static_cast<int64_t>(offsets.size()) - 1;
    problem.dimensions = 1 + random() % hidden;
    problem.mean = random() % 2;
    problem.normalize = random() % 2;
    std::vector<float> expected(problem.sequences * problem.dimensions, 0);
    const DeviceMemory device_rows(rows);
    const DeviceMemory device_offsets(offsets);
    const DeviceMemory device_output(expected);

    problem.rows = device_rows.as<T>();
    problem.offsets = device_offsets.as<int64_t>();
    problem.output = device_output.as<float>();
    ran = ran && kernels::cuda::Run(problem, nullptr) == cudaSuccess &&
          cudaDeviceSynchronize() == cudaSuccess;
    problem.rows = rows.data();
    problem.offsets = offsets.data();
    problem.output = expected.data();
    kernels::cpu::Run(problem);
    worst = std::max(worst, attention::Distance(device_output.Read<float>(), expected));
  }
  report.Check(ran && worst < 1e-5,
               "ragged pooling, " + type + ": worst relative error " + Scientific(worst));
}

template <typename T>
void CheckFlags(Element element, const std::string& type, std::mt19937& random, Report& report) {
  bool same = true;
  for (int round = 0; round < 40; ++round) {
    const int64_t columns = 1 + random() % 700;
    const std::vector<int64_t> offsets = RandomOffsets(random, 1 + random() % 50, 30);
    std::vector<T> rows(offsets.back() * columns, static_cast<T>(1.0f));
    for (int bad = 0; bad < 3; ++bad) {
      rows[random() % rows.size()] =
          static_cast<T>(bad == 0 ? std::numeric_limits<float>::quiet_NaN()
                                  : (bad == 1 ? 1 : -1) * std::numeric_limits<float>::infinity());
    }
    const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
    std::vector<int32_t> expected(sequences, -1);
    const DeviceMemory device_rows(rows);
    const DeviceMemory device_offsets(offsets);
    const DeviceMemory device_flags(expected);
    same = same && kernels::cuda::Run(FlagNonFinite{device_rows.as<T>(), element, columns, columns,
                                                    device_offsets.as<int64_t>(), sequences,
                                                    device_flags.as<int32_t>()},
                                      nullptr) == cudaSuccess;
    kernels::cpu::Run(FlagNonFinite{rows.data(), element, columns, columns, offsets.data(),
                                    sequences, expected.data()});
    same = same && device_flags.Read<int32_t>() == expected;
  }
  report.Check(same, "non-finite flags, " + type);
}

}  // namespace

void CheckKernels(uint32_t seed, Report& report) {
  report.Section("kernels against their CPU twins");
  std::mt19937 random(seed);
  CheckPooling<float>(Element::kFloat32, "fp32", random, report);
  CheckPooling<c10::Half>(Element::kFloat16, "fp16", random, report);
  CheckPooling<c10::BFloat16>(Element::kBFloat16, "bf16", random, report);
  CheckFlags<float>(Element::kFloat32, "fp32", random, report);
  CheckFlags<c10::Half>(Element::kFloat16, "fp16", random, report);
  CheckFlags<c10::BFloat16>(Element::kBFloat16, "bf16", random, report);
}

}  // namespace castor::gpu
