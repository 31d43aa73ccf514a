#include "engine/scheduling/check_options.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "engine/base/error.h"

namespace castor {
namespace {

struct Range {
  const char* field;
  int64_t value;
  int64_t min;
  int64_t max;
};

}  // namespace

absl::Status CheckOptions(const EngineOptions& options) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMaxThreads = 1024;
  for (const Range& range : {
           Range{"cpu_threads", options.cpu_threads, 0, kMaxThreads},
           Range{"max_queued_requests", options.max_queued_requests, 1, kMax},
           Range{"max_queued_tokens", options.max_queued_tokens, 1, kMax},
           Range{"max_queued_bytes", options.max_queued_bytes, 1, kMax},
           Range{"max_batch_tokens", options.max_batch_tokens, 1, kMax},
           Range{"max_batch_requests", options.max_batch_requests, 1, kMax},
           // Above a minute it is a mistake of units.
           Range{"batch_delay", options.batch_delay.count(), 0, 60'000'000},
           Range{"max_sequences", options.max_sequences, 1, 1 << 24},
           Range{"max_text_bytes", options.max_text_bytes, 1, kMax},
           Range{"cost_model_budget", options.cost_model_budget.count(), 0, 60'000},
           Range{"fidelity_sample_rows", options.fidelity_sample_rows, 1, 1024},
           Range{"completion_threads", options.completion_threads, 1, kMaxThreads},
           Range{"tokenizer_threads", options.tokenizer_threads, 0, kMaxThreads},
           Range{"max_cached_host_bytes", options.max_cached_host_bytes, 0, kMax},
       }) {
    if (range.value >= range.min && range.value <= range.max) continue;
    std::string problem =
        std::to_string(range.value) + " is not at least " + std::to_string(range.min);
    if (range.max != kMax) problem += " and at most " + std::to_string(range.max);
    return InvalidField(range.field, problem);
  }
  if (!(options.fidelity_share >= 0 && options.fidelity_share <= 1)) {  // NaN fails too
    return InvalidField("fidelity_share", "must be 0..1");
  }
  std::set<std::string> names;
  for (const ModelSource& model : options.models) {
    if (model.name.empty()) return InvalidField("models", "a model has no name");
    if (!names.insert(model.name).second) {
      return InvalidField("models", "two models are named \"" + model.name + "\"");
    }
  }
  return absl::OkStatus();
}

}  // namespace castor
