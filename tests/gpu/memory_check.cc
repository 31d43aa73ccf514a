#include <random>
#include <string>
#include <vector>

#include "engine/forecast/memory.h"
#include "tests/gpu/batches.h"
#include "tests/gpu/checks.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"

namespace castor::gpu {

void CheckMemory(Device& device, uint32_t seed, Report& report) {
  report.Section("memory of batches, measured and predicted");
  std::mt19937 random(seed);
  const MemoryForecast forecast(device.variants(), device.copies_tensors());
  const std::vector<Kernel> kernels = {Vanilla{}, Vanilla{true}, attention::PlainClusters(100),
                                       attention::ImprovedClusters(100, 32)};
  for (const DType dtype : attention::kFloatTypes) {
    for (const Kernel& kernel : kernels) {
      for (const bool odd : {false, true}) {
        const int64_t dim = odd ? 1 + static_cast<int64_t>(random() % 100) : 64;
        const attention::Spec spec =
            attention::MakeSpec(dtype, kernel, 1 + random() % 12, dim, dim);
        std::vector<RequestShape> requests(1 + random() % 4);
        MemoryNeed predicted;
        for (RequestShape& request : requests) {
          request.seed = random();
          for (uint32_t left = 1 + random() % 8; left > 0; --left) {
            request.query_lengths.push_back(static_cast<int32_t>(1 + random() % 2048));
          }
          request.key_lengths = request.query_lengths;
          attention::Resolved resolved;
          resolved.spec = spec;
          resolved.cu_seqlens_q = resolved.cu_seqlens_k =
              attention::OffsetsOf(request.query_lengths);
          predicted = predicted + forecast.Of(Plan(), resolved);
        }
        if (!report.SelectsNextCase()) continue;
        const StagedBatch batch(device, spec, requests);
        const auto times = batch.Run(device);
        const int64_t measured = times.ok() ? times->workspace_bytes : 0;
        report.Check(times.ok() && measured <= predicted.bytes(),
                     attention::Describe(spec) + ": " + std::to_string(measured) +
                         " bytes measured, at most " + std::to_string(predicted.bytes()) +
                         " predicted");
      }
    }
  }
}

}  // namespace castor::gpu
