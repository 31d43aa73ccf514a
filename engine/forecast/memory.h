// The device memory that a request will need: an upper bound, counted from its lengths as the
// kernels and layers allocate.
//
// Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "engine/attention/resolve.h"
#include "engine/attention/variants.h"
#include "engine/automatic/plan.h"
#include "engine/device/device.h"
#include "engine/ledger/device_memory.h"
#include "engine/request.h"
#include "engine/residents/model_list.h"

namespace castor {

class MemoryForecast {
 public:
  // `variants` must outlive the object. `copies`: Device::copies_tensors.
  MemoryForecast(std::span<const attention::Variant> variants, bool copies)
      : variants_(variants), copies_(copies) {}

  // The need of an attention request: enough for any kernel that may run, and for the probe of the
  // error.
  MemoryNeed Of(const Plan& plan, const attention::Resolved& resolved) const;

  // The need of an encoder with this kernel for sequences with these offsets and the request's
  // inputs and outputs.
  MemoryNeed Of(const LoadedModel& model, const Kernel& kernel, const EncodeRequest& request,
                std::span<const int32_t> cu_seqlens) const;

 private:
  MemoryNeed LayersOf(const LoadedModel& model, const Kernel& kernel,
                      std::span<const int32_t> cu_seqlens) const;
  MemoryNeed WorkspaceOf(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                         std::span<const int32_t> cu_seqlens_k) const;
  MemoryNeed RunOf(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                   std::span<const int32_t> cu_seqlens_k) const;

  const std::span<const attention::Variant> variants_;
  const bool copies_;
};

}  // namespace castor
