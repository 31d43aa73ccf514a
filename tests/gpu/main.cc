// Checks and times Castor on a GPU: what deploy/gpu/check.sh runs on a GPU host.
//   castor-gpu-check [--device cuda:0 | cpu] [--seed N] [--every N] [--no-timing] [--help]
// With --device cpu it checks the CPU's device the same way, and skips what needs a GPU. Exits 0
// when every check held.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/device/device.h"
#include "tests/gpu/checks.h"

namespace castor::gpu {
namespace {

struct Arguments {
  std::string device = "cuda:0";
  uint32_t seed = 1;
  int every = 1;  // every how many cases of a check's list run
  bool timing = true;
};

constexpr char kUsage[] =
    "usage: %s [--device cuda:0 | cpu] [--seed N] [--every N] [--no-timing] [--help]\n";

// Reports "opens NAME", and the error if it does not.
bool CheckOpens(const std::string& name, const absl::Status& status, Report& report) {
  return report.Check(status.ok(),
                      "opens " + name + (status.ok() ? "" : ": ") + std::string(status.message()));
}

int Main(const Arguments& arguments) {
  Report report(arguments.every);
  report.Section("devices, seed " + std::to_string(arguments.seed));
  EngineOptions options;
  options.device = "cpu";
  const auto cpu = OpenDevice(options);
  options.device = arguments.device;
  const auto device = OpenDevice(options);
  if (!CheckOpens("the CPU", cpu.status(), report) ||
      !CheckOpens(arguments.device, device.status(), report)) {
    return 1;
  }
  const DeviceInfo& info = (*device)->info();
  report.Note(info.name + ", " + info.description + ", " + std::to_string(info.memory_bytes >> 20) +
              " MiB, " + info.backend);

  const bool gpu = arguments.device != "cpu";
  if (gpu) {
    CheckClusteredKernels(arguments.seed, report);
    CheckCastKernels(arguments.seed, report);
  }
  CheckAttention(**device, **cpu, arguments.seed, report);
  if (gpu) CheckCuts(arguments.seed, report);
  CheckClustered(**device, **cpu, arguments.seed, report);
  CheckCast(**device, arguments.seed, report);
  CheckMemory(**device, arguments.seed, report);
  CheckEncoder(arguments.device, arguments.seed, report);
  if (gpu && arguments.timing) {
    TimeAttention(arguments.device, report);
    TimeApproximate(arguments.device, report);
  }

  std::printf("\n%d checks held, %d failed (seed %u)\n", report.passed(), report.failed(),
              arguments.seed);
  return report.failed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace castor::gpu

int main(int argc, char** argv) {
  castor::gpu::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-timing") == 0) {
      arguments.timing = false;
    } else if (std::strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
      arguments.device = argv[++i];
    } else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      arguments.seed = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    } else if (std::strcmp(argv[i], "--every") == 0 && i + 1 < argc) {
      arguments.every = std::max(std::atoi(argv[++i]), 1);
    } else if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
      std::printf(castor::gpu::kUsage, argv[0]);
      return 0;
    } else {
      std::fprintf(stderr, castor::gpu::kUsage, argv[0]);
      return 2;
    }
  }
  return castor::gpu::Main(arguments);
}
