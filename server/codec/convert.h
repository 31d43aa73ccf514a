// From messages as read to the engine's types: refuses what only the wire can express (absent
// fields, unknown enumeration values, what is not served) with the path of the field, and puts in
// the defaults that zero stands for. Ranges and shapes are the engine's to check. No function keeps
// anything but what it puts into its arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "engine/request.h"
#include "server/codec/enums.h"
#include "server/codec/messages.h"
#include "server/codec/regions.h"

namespace castor::server {

// Where CAST's tensors come from: the request, which then must bring them, or the model that runs
// it.
enum class CastTensorsFrom { kRequest, kModel };

absl::Status ConvertRequestId(wire::Text request_id, CallContext* out);
absl::Status ConvertPriority(int32_t priority, CallContext* out);

// `field` is the tensor's path, such as "query". Its bytes become out->pieces, or, where they lie
// in a shared-memory region, out->file, which `regions` keeps open. Refuses an absent one.
absl::Status ConvertTensor(const wire::Tensor& tensor, std::string_view field,
                           RequestRegions& regions, TensorInput* out);
absl::Status ConvertTensor(const std::optional<wire::Tensor>& tensor, std::string_view field,
                           RequestRegions& regions, TensorInput* out);

// Keeps *out, the default, when the request names no kernel.
absl::Status ConvertKernel(const wire::Kernel& kernel, CastTensorsFrom tensors,
                           RequestRegions& regions, std::optional<Kernel>* out);

absl::Status UnknownValue(std::string_view field, int32_t value);

// Looks the value up in a table of enums.h; zero keeps *out, the default.
template <typename Wire, typename Ours, size_t kRows>
absl::Status ConvertEnum(const EnumRow<Wire, Ours> (&table)[kRows], int32_t value,
                         std::string_view field, Ours* out) {
  if (value == 0) return absl::OkStatus();
  const std::optional<Ours> ours = FromWire(table, value);
  if (!ours.has_value()) return UnknownValue(field, value);
  *out = *ours;
  return absl::OkStatus();
}

}  // namespace castor::server
