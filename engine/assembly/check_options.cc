#include "engine/assembly/check_options.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "engine/base/error.h"
#include "engine/option_bounds.h"

namespace castor {
namespace {

struct Range {
  const char* field;
  int64_t value;
  int64_t min;
  int64_t max;
};

Range Within(const char* field, int64_t value, OptionBounds bounds) {
  return {field, value, bounds.low, bounds.high};
}

}  // namespace

absl::Status CheckOptions(const EngineOptions& options) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const Range& range : {
           Within("cpu_threads", options.cpu_threads, kCpuThreadsBounds),
           Range{"max_queued_requests", options.max_queued_requests, 1, kMax},
           Range{"max_queued_tokens", options.max_queued_tokens, 1, kMax},
           Range{"max_queued_bytes", options.max_queued_bytes, 1, kMax},
           Range{"max_batch_tokens", options.max_batch_tokens, 1, kMax},
           Range{"max_batch_requests", options.max_batch_requests, 1, kMax},
           Within("batch_delay", options.batch_delay.count(), kBatchDelayUsBounds),
           Within("max_sequences", options.max_sequences, kSequencesBounds),
           Range{"max_text_bytes", options.max_text_bytes, 1, kMax},
           Within("cost_model_budget", options.cost_model_budget.count(), kCostModelBudgetMsBounds),
           Within("fidelity_sample_rows", options.fidelity_sample_rows, kFidelityRowsBounds),
           Within("completion_threads", options.completion_threads, kCompletionThreadsBounds),
           Within("tokenizer_threads", options.tokenizer_threads, kTokenizerThreadsBounds),
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
