#include <malloc.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/machine.h"
#include "server/metrics/collectors.h"

namespace castor::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

MetricFamily Gauges(const char* name, const char* help) {
  return {name, help, MetricType::Gauge, {}};
}

void Add(MetricFamily& family, int64_t bytes, Labels labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = static_cast<double>(bytes);
  family.metric.push_back(std::move(metric));
}

MetricFamily Weights(const EngineInfo& info) {
  MetricFamily family = Gauges("castor_model_weights_bytes", "Weights of a model, by device.");
  for (const ModelInfo& model : info.models) {
    // CAST layers, which encode nothing, stay in the host's memory.
    const bool on_host = model.outputs.empty();
    Add(family, model.weight_bytes,
        {{"model", model.name}, {"device", on_host ? "cpu" : info.device.name}});
  }
  return family;
}

MetricFamily Runs(const char* name, const char* help, const RunMemory& memory) {
  MetricFamily family = Gauges(name, help);
  Add(family, memory.activations, {{"kind", "activations"}});
  Add(family, memory.workspace, {{"kind", "workspace"}});
  return family;
}

class MemoryCollector : public prometheus::Collectable {
 public:
  explicit MemoryCollector(const Engine& engine) : engine_(engine) {}

  std::vector<MetricFamily> Collect() const override {
    const MemoryStats memory = engine_.stats().memory;
    std::vector<MetricFamily> families;
    // Without models there is no series, and a family without any is not printed.
    if (MetricFamily weights = Weights(engine_.info()); !weights.metric.empty()) {
      families.push_back(std::move(weights));
    }
    families.push_back(Runs("castor_run_memory_bytes",
                            "Predicted device memory of running batches.", memory.runs));
    families.push_back(Runs("castor_run_memory_peak_bytes",
                            "Peak of the predicted device memory of running batches, by kind.",
                            memory.runs_peak));
    auto add = [&](const char* name, const char* help, int64_t bytes) {
      Add(families.emplace_back(Gauges(name, help)), bytes);
    };
    add("castor_device_memory_split_bytes",
        "Fragments: unused parts of the caching allocator's blocks in use. 0 on a CPU.",
        memory.device_split_bytes);
    const struct mallinfo2 heap = mallinfo2();
    add("castor_heap_used_bytes",
        "Heap blocks in use, without free memory kept for the next messages.",
        static_cast<int64_t>(heap.uordblks + heap.hblkhd));
    add("castor_heap_free_bytes",
        "Free heap blocks, kept for the next messages or returned page by page.",
        static_cast<int64_t>(heap.fordblks));
    add("castor_memory_limit_bytes",
        "Memory limit of the process: the least of the machine's memory and all limits.",
        MemoryLimitBytes());
    return families;
  }

 private:
  const Engine& engine_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeMemoryCollector(const Engine& engine) {
  return std::make_shared<MemoryCollector>(engine);
}

}  // namespace castor::server
