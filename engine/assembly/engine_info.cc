#include <chrono>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "engine/assembly/internal.h"
#include "engine/base/error.h"
#include "engine/kernel_table.h"
#include "engine/option_bounds.h"

namespace castor {
namespace {

// A problem that an implementation of a kernel should support if it supports the dtype.
attention::Spec CommonSpec(KernelName name, DType dtype) {
  attention::Spec spec;
  spec.dtype = dtype;
  spec.heads = spec.kv_heads = 8;
  spec.head_dim = 64;
  spec.value_dim = 64;
  spec.softmax_scale = 0.125;
  spec.kernel = DefaultKernel(name);
  return spec;
}

}  // namespace

EngineInfo DescribeEngine(const Device& device) {
  EngineInfo info;
  info.device = device.info();
  for (const KernelRow& row : kKernels) {
    const KernelName name = row.name;
    KernelInfo kernel{name, {}, "", true, true, true, true};
    for (const DType dtype : kFloatingDTypes) {
      const attention::Spec spec = CommonSpec(name, dtype);
      const attention::Variant* const variant = FindVariant(device.variants(), spec);
      if (variant == nullptr) continue;
      kernel.dtypes.push_back(dtype);
      if (kernel.backend.empty()) kernel.backend = std::string(variant->backend);
      const auto takes = [&](auto change) {
        attention::Spec changed = spec;
        change(changed);
        return FindVariant(device.variants(), changed) != nullptr;
      };
      kernel.log_sum_exp &= takes([](attention::Spec& s) { s.log_sum_exp = true; });
      kernel.positions &= takes([](attention::Spec& s) {
        s.placed = true;
        s.window = {.left = 1, .right = 1, .always_visible = 1};
        s.bias.reach = 1;
      });
      kernel.softcap &= takes([](attention::Spec& s) { s.softcap = 1; });
      kernel.key_bias &= takes([](attention::Spec& s) { s.key_bias_heads = 1; });
    }
    if (!kernel.dtypes.empty()) info.kernels.push_back(std::move(kernel));
  }
  return info;
}

namespace {

struct Setting {
  const char* field;
  int64_t value;
  OptionBounds bounds;
};

}  // namespace

absl::Status CheckOptions(const EngineOptions& options) {
  using std::chrono::microseconds;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const auto& [field, value, bounds] : {
           Setting{"cpu_threads", options.cpu_threads, kCpuThreadsBounds},
           {"max_queued_requests", options.max_queued_requests, kQueuedRequestsBounds},
           {"max_queued_tokens", options.max_queued_tokens, kQueuedTokensBounds},
           // The engine works with any positive value; programs apply kQueuedBytesBounds.
           {"max_queued_bytes", options.max_queued_bytes, {1, kMax}},
           {"max_device_bytes", options.max_device_bytes, kDeviceBytesBounds},
           {"max_queued_time", options.max_queued_time.count(), kQueuedTimeBounds},
           {"max_request_time", options.max_request_time.count(), kRequestTimeBounds},
           {"max_batch_tokens", options.max_batch_tokens, kBatchTokensBounds},
           {"max_batch_requests", options.max_batch_requests, kBatchRequestsBounds},
           {"batch_delay", options.batch_delay.count(), kBatchDelayBounds},
           {"max_sequences", options.max_sequences, kSequencesBounds},
           {"max_text_bytes", options.max_text_bytes, kTextBytesBounds},
           {"cost_model_budget", options.cost_model_budget.count(), kCostModelBudgetBounds},
           {"max_cached_host_bytes", options.max_cached_host_bytes, kCachedHostBytesBounds},
           {"answer_cache", options.answer_cache, kAnswerCacheBounds},
           {"catalog.weights_budget", options.catalog.weights_budget, kDeviceBytesBounds},
           {"catalog.idle_unload", options.catalog.idle_unload.count(), kIdleUnloadBounds},
       }) {
    if (value >= bounds.low && value <= bounds.high) continue;
    std::string problem = std::to_string(value) + " is below " + std::to_string(bounds.low);
    if (bounds.high != kMax) {
      problem = std::to_string(value) + " is not within " + std::to_string(bounds.low) + ".." +
                std::to_string(bounds.high);
    }
    return InvalidField(field, problem);
  }
  // NaN fails too.
  if (!(options.fidelity_share >= 0 && options.fidelity_share <= 1)) {
    return InvalidField("fidelity_share", "must be 0..1");
  }
  for (const auto& [tenant, terms] : options.tenants) {
    if (!(terms.weight >= kMinTenantWeight && terms.weight <= kMaxTenantWeight)) {
      return InvalidField("tenants", "the weight of \"" + tenant + "\" is not within 0.001..1000");
    }
    for (const int64_t quota :
         {terms.max_queued_requests, terms.max_queued_tokens, terms.max_queued_bytes}) {
      if (quota >= kTenantQuotaBounds.low && quota <= kTenantQuotaBounds.high) continue;
      return InvalidField("tenants", "a quota of \"" + tenant + "\" is not within 0.." +
                                         std::to_string(kTenantQuotaBounds.high));
    }
  }
  if (options.catalog.root.empty() != (options.catalog.control == ModelControl::kNone)) {
    return InvalidField("catalog.control", "and catalog.root need each other");
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
