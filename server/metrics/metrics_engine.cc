#include <dirent.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/machine.h"
#include "engine/kernel_table.h"
#include "server/logging.h"
#include "server/metrics/samples.h"

namespace castor::server {
namespace {

constexpr size_t kSecondsStep = 2;  // every second bound: steps of about 2.5
constexpr size_t kShortStep = 3;    // of 4: waits and copies
constexpr size_t kBatchStep = 2;    // of 4
constexpr size_t kWaitStep = 4;     // of 6

// `copies`: the device does, unlike a CPU.
void CollectWork(const EngineStats& stats, bool copies, Samples& out) {
  const auto each = [&](auto&& add) {
    for (const WorkStats& work : stats.work) {
      Samples::Labels labels{{"kernel", work.kernel}, {"operation", work.operation}};
      if (!work.model.empty()) labels[0] = {"model", work.model};
      add(work, std::move(labels));
    }
  };
  const auto count = [&](const char* name, const char* help, uint64_t WorkStats::*of) {
    each([&](const WorkStats& work, Samples::Labels labels) {
      out.Counter(name, help, work.*of, std::move(labels));
    });
  };
  const auto observe = [&](const char* name, const char* help, HistogramSnapshot WorkStats::*of,
                           size_t step) {
    each([&](const WorkStats& work, Samples::Labels labels) {
      out.Histogram(name, help, work.*of, step, std::move(labels));
    });
  };
  each([&](const WorkStats& work, const Samples::Labels& labels) {
    for (const auto& [kernel, requests] : work.requests) {
      Samples::Labels all = labels;
      if (!work.model.empty()) all.insert(all.begin(), {"kernel", kernel});
      out.Counter("castor_engine_requests_total", "Requests that the engine answered OK.", requests,
                  std::move(all));
    }
  });
  count("castor_batches_total", "Batches executed.", &WorkStats::batches);
  count("castor_tokens_total", "Tokens computed.", &WorkStats::tokens);
  count("castor_padded_tokens_total", "Tokens computed that no request asked for.",
        &WorkStats::padded_tokens);
  observe("castor_queue_duration_seconds", "Time a request waits for its batch to start.",
          &WorkStats::queue_seconds, kShortStep);

  const auto stage = [&](const HistogramSnapshot& seconds, const char* phase,
                         Samples::Labels labels, size_t step = kSecondsStep) {
    labels.push_back({"phase", phase});
    out.Histogram("castor_stage_duration_seconds",
                  "Time of each stage: tokenize per request; copy_in, compute and copy_out per "
                  "batch.",
                  seconds, step, std::move(labels));
  };
  each([&](const WorkStats& work, const Samples::Labels& labels) {
    stage(work.compute_seconds, "compute", labels);
    if (!copies) return;
    stage(work.copy_in_seconds, "copy_in", labels, kShortStep);
    stage(work.copy_out_seconds, "copy_out", labels, kShortStep);
  });
  stage(stats.tokenize_seconds, "tokenize", {{"operation", "encode"}});

  observe("castor_batch_requests", "Requests in a batch.", &WorkStats::batch_requests, kBatchStep);
  observe("castor_batch_tokens", "Tokens in a batch.", &WorkStats::batch_tokens, kBatchStep);
  observe("castor_prediction_ratio",
          "Measured time of a batch on the device divided by the predicted time.",
          &WorkStats::prediction_ratio, 1);

  const auto each_attend = [&](auto&& add) {
    for (const WorkStats& work : stats.work) {
      const KernelRow* const row = FindKernel(work.kernel);
      if (row == nullptr || row->kind == KernelKind::kOther || work.operation == "encode") continue;
      add(work, Samples::Labels{{"kernel", work.kernel}});
    }
  };
  each_attend([&](const WorkStats& work, Samples::Labels kernel) {
    out.Counter("castor_automatic_requests_total",
                "Requests for the automatic kernel, by the kernel that answered them.",
                work.automatic_requests, std::move(kernel));
  });
  each_attend([&](const WorkStats& work, Samples::Labels kernel) {
    if (work.relative_error.bounds.empty()) return;
    out.Counter("castor_automatic_rejected_total",
                "Runs of a kernel for the automatic kernel whose estimated error exceeded the "
                "request's limit.",
                work.automatic_rejected, std::move(kernel));
  });
  each_attend([&](const WorkStats& work, Samples::Labels kernel) {
    if (work.relative_error.bounds.empty()) return;
    out.Histogram("castor_attention_relative_error",
                  "Estimated relative L2 error of an approximate kernel, per request that was "
                  "probed.",
                  work.relative_error, 1, std::move(kernel));
  });
  out.Histogram("castor_fidelity_probe_duration_seconds",
                "Time to measure the errors of a batch's requests, exact rows included.",
                stats.fidelity_seconds, kSecondsStep);
}

void CollectCache(const EngineStats& stats, Samples& out) {
  for (const WorkStats& work : stats.work) {
    if (work.model.empty()) continue;
    for (const auto& [result, count] :
         {std::pair("hit", work.cache.hits), {"miss", work.cache.misses}}) {
      out.Counter("castor_answer_cache_requests_total",
                  "Requests whose answers --answer-cache may hold, by whether it did.", count,
                  {{"model", work.model}, {"result", result}});
    }
  }
  for (const WorkStats& work : stats.work) {
    if (work.model.empty()) continue;
    out.Gauge("castor_answer_cache_bytes", "Answers in --answer-cache, with their keys.",
              work.cache.bytes, {{"model", work.model}});
  }
}

void CollectLoad(const EngineStats& stats, Samples& out) {
  const LoadStats& load = stats.load;
  out.Gauge("castor_queue_depth", "Requests waiting for a batch.", load.queued_requests);
  out.Gauge("castor_inflight_requests", "Requests admitted and not answered.",
            load.inflight_requests);
  out.Gauge("castor_inflight_tokens", "Their tokens.", load.inflight_tokens);
  out.Gauge("castor_inflight_bytes", "Their inputs and outputs in staging memory.",
            load.inflight_bytes);
  for (const auto& [unit, most] : {std::pair("requests", load.max_requests),
                                   {"tokens", load.max_tokens},
                                   {"bytes", load.max_bytes}}) {
    out.Gauge("castor_queue_limit", "Budgets of requests in flight, by unit.", most,
              {{"unit", unit}});
  }
  out.Gauge("castor_queued_seconds", "Predicted device time of waiting requests.",
            load.queued_seconds);
  out.Gauge("castor_queued_seconds_limit", "Longest predicted wait at which requests are admitted.",
            load.max_queued_seconds);
  out.Gauge("castor_oldest_request_seconds", "Age of the oldest unanswered request.",
            load.oldest_seconds);
  out.Gauge("castor_saturation_ratio", "Share of the scarcest budget in use, 0 to 1.",
            load.saturation);
  out.Counter("castor_deadline_misses_total", "Admitted requests not answered by their deadline.",
              stats.deadline_misses);
  out.Counter("castor_preemptions_total", "Batches that preempted a running one.",
              stats.preemptions);
  out.Counter("castor_wasted_compute_seconds_total",
              "Device time spent on requests that were not answered, or answered too late.",
              stats.wasted_seconds);
  constexpr const char* kPriorities[] = {"low", "normal", "high"};
  for (size_t level = 0; level < stats.wait_seconds.size(); ++level) {
    out.Histogram("castor_wait_duration_seconds",
                  "Time a request waits for its batch to start, by priority.",
                  stats.wait_seconds[level], kWaitStep, {{"priority", kPriorities[level]}});
  }
  for (const auto& [tenant, seconds] : stats.tenant_seconds) {
    out.Counter("castor_tenant_compute_seconds_total",
                "Device time by tenant; where there are many, most share the name other.", seconds,
                {{"tenant", tenant}});
  }
  for (const RefusalStats& refusal : stats.refusals) {
    out.Counter("castor_rejected_total", "Requests that the engine refused, by reason.",
                refusal.count, {{"reason", std::string(NameOf(refusal.reason))}});
  }
  for (const auto& [at, count] :
       {std::pair("queued", stats.cancelled_queued), {"running", stats.cancelled_running}}) {
    out.Counter("castor_cancelled_total", "Requests cancelled or expired, by stage.", count,
                {{"stage", at}});
  }
}

void CollectModels(const Engine& engine, Samples& out) {
  const std::string device = engine.info().device.name;
  const std::shared_ptr<const ModelInfos> models = engine.models();
  for (const ModelInfo& model : *models) {
    // CAST layers, which encode nothing, stay in the host's memory.
    const bool on_host = model.outputs.empty();
    const int64_t bytes = model.alias_of.empty() ? model.weight_bytes : 0;  // they are there once
    out.Gauge("castor_model_weights_bytes", "Weights of a model, by device.", bytes,
              {{"model", model.name}, {"device", on_host ? "cpu" : device}});
  }
  if (engine.options().catalog.control == ModelControl::kNone) return;
  const std::vector<ModelStatus> statuses = engine.model_statuses();
  const auto each = [&](auto&& write) {
    for (const ModelStatus& status : statuses)
      write(status, Samples::Labels{{"model", status.name}});
  };
  constexpr std::array<const char*, 6> kStates = {"unloaded", "waiting",   "loading",
                                                  "ready",    "unloading", "failed"};
  each([&](const ModelStatus& status, Samples::Labels labels) {
    labels.push_back({"state", kStates.at(static_cast<size_t>(status.state))});
    out.Gauge("castor_model_state", "1 for the state that a model of the catalog is in.", 1,
              std::move(labels));
  });
  each([&](const ModelStatus& status, Samples::Labels labels) {
    out.Counter("castor_model_loads_total", "Times that a model was loaded.", status.loads,
                std::move(labels));
  });
  each([&](const ModelStatus& status, Samples::Labels labels) {
    out.Gauge("castor_model_load_seconds", "The time of a model's last load.", status.load_seconds,
              std::move(labels));
  });
  const ModelCatalogStats stats = engine.catalog_stats();
  out.Gauge("castor_weights_budget_bytes", "--weights-budget.", stats.weights_budget);
  out.Gauge("castor_weights_used_bytes",
            "Weights of all models, also of those being loaded or freed.", stats.weight_bytes);
  out.Counter("castor_model_evictions_total",
              "Models unloaded to make room, or because no request used them for --idle-unload.",
              stats.evictions);
}

void CollectMemory(const EngineStats& stats, Samples& out) {
  const MemoryStats& memory = stats.memory;
  out.Gauge("castor_device_memory_allocated_bytes", "Device memory in tensors.",
            memory.device_allocated_bytes);
  out.Gauge("castor_device_memory_reserved_bytes",
            "Device memory that the caching allocator holds, tensors included.",
            memory.device_reserved_bytes);
  out.Gauge("castor_device_memory_split_bytes",
            "Fragments: unused parts of the caching allocator's blocks in use. 0 on a CPU.",
            memory.device_split_bytes);
  out.Gauge("castor_device_memory_peak_bytes", "Peak device memory in tensors.",
            memory.device_peak_bytes);
  out.Gauge("castor_device_memory_predicted_bytes",
            "Device memory of the models' weights, plus the prediction for running batches.",
            stats.load.device_bytes);
  out.Gauge("castor_device_memory_limit_bytes", "Limit of castor_device_memory_predicted_bytes.",
            stats.load.max_device_bytes);
  const auto runs = [&](const char* name, const char* help, const RunMemory& of) {
    out.Gauge(name, help, of.activations, {{"kind", "activations"}});
    out.Gauge(name, help, of.workspace, {{"kind", "workspace"}});
  };
  runs("castor_run_memory_bytes", "Predicted device memory of running batches.", memory.runs);
  runs("castor_run_memory_peak_bytes",
       "Peak of the predicted device memory of running batches, by kind.", memory.runs_peak);
  for (const auto& [state, bytes] :
       {std::pair("in_use", memory.host_in_use_bytes), {"cached", memory.host_cached_bytes}}) {
    out.Gauge("castor_staging_memory_bytes",
              "Staging memory on the host: in use by requests, or cached for the next.", bytes,
              {{"state", state}});
  }
  out.Gauge("castor_staging_memory_peak_bytes", "Peak staging memory in use.",
            memory.host_peak_bytes);
  const struct mallinfo2 heap = mallinfo2();
  out.Gauge("castor_heap_used_bytes",
            "Heap blocks in use, without free memory kept for the next messages.",
            heap.uordblks + heap.hblkhd);
  out.Gauge("castor_heap_free_bytes",
            "Free heap blocks, kept for the next messages or returned page by page.",
            heap.fordblks);
  out.Gauge("castor_memory_limit_bytes",
            "Memory limit of the process: the least of the machine's memory and all limits.",
            MemoryLimitBytes());
}

class EngineCollector : public prometheus::Collectable {
 public:
  explicit EngineCollector(const Engine& engine) : engine_(engine) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const EngineStats stats = engine_.stats();
    const EngineInfo info = engine_.info();
    Samples out;
    CollectWork(stats, /*copies=*/info.device.name != "cpu", out);
    if (engine_.options().answer_cache > 0) CollectCache(stats, out);
    CollectLoad(stats, out);
    CollectMemory(stats, out);
    CollectModels(engine_, out);
    out.Counter("castor_engine_faults_total", "Errors of the device.", stats.device_faults);
    out.Gauge("castor_device_healthy", "0 after a device fault that is not recoverable, else 1.",
              stats.device_healthy ? 1 : 0);
    return out.TakeFamilies();
  }

 private:
  const Engine& engine_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeEngineCollector(const Engine& engine) {
  return std::make_shared<EngineCollector>(engine);
}

namespace {

// Seconds since the epoch at which the machine booted; 0 when unknown.
double BootTime() {
  std::ifstream stat("/proc/stat");
  for (std::string word; stat >> word;) {
    double seconds = 0;
    if (word == "btime" && stat >> seconds) return seconds;
  }
  return 0;
}

int CountOpenFiles() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int entries = 0;
  while (readdir(folder) != nullptr) ++entries;
  closedir(folder);
  return entries - 3;  // ".", ".." and the folder itself
}

class ProcessCollector : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    Samples out;
    // /proc/self/stat: the command in parentheses may hold anything; fields count from its end.
    std::ifstream file("/proc/self/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t command_end = text.rfind(')');
    if (command_end != std::string::npos) {
      std::istringstream rest(text.substr(command_end + 1));
      const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
      constexpr size_t kUserTicks = 11, kSystemTicks = 12, kThreads = 17, kStartTicks = 19,
                       kVirtualBytes = 20, kResidentPages = 21;
      if (fields.size() > kResidentPages) {
        auto number = [&](size_t field) { return std::strtod(fields[field].c_str(), nullptr); };
        const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
        const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
        out.Counter("process_cpu_seconds_total", "User and system CPU time spent.",
                    (number(kUserTicks) + number(kSystemTicks)) / ticks);
        out.Gauge("process_threads", "Threads of the process.", number(kThreads));
        out.Gauge("process_virtual_memory_bytes", "Virtual memory size.", number(kVirtualBytes));
        out.Gauge("process_resident_memory_bytes", "Resident memory size.",
                  number(kResidentPages) * page);
        if (boot_time_ > 0) {
          out.Gauge("process_start_time_seconds", "Start of the process since the epoch.",
                    boot_time_ + number(kStartTicks) / ticks);
        }
      }
    }
    if (const int open = CountOpenFiles(); open >= 0) {
      out.Gauge("process_open_fds", "Open file descriptors.", open);
    }
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
      out.Gauge("process_max_fds", "Maximum number of open file descriptors.", limit.rlim_cur);
    }
    out.Counter("castor_log_lines_dropped_total",
                "Log lines lost because standard error was too slow.", DroppedLogLines());
    return out.TakeFamilies();
  }

 private:
  const double boot_time_ = BootTime();
};

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeProcessCollector() {
  return std::make_shared<ProcessCollector>();
}

}  // namespace castor::server
