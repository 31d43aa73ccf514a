// Converts messages as read to the engine's types. Refuses what only the wire can express (absent
// fields, unknown enumeration values, features that are not served) and names the field; fills in
// the defaults that zero stands for. The engine checks ranges and shapes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "engine/request.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/codec/enums.h"
#include "server/codec/messages.h"
#include "server/codec/regions.h"
#include "server/codec/slice_view.h"

namespace castor::server {

// Where CAST's tensors come from: the request, which then must have them, or the model.
enum class CastTensorsFrom { kRequest, kModel };

absl::Status ConvertRequestId(wire::Text request_id, CallContext* out);

// Begins to decode a request: reads `bytes` as `message`, and its request_id, which is set on an
// error, too, if it was read. `out` is emptied; it holds what the message points into.
template <wire::Message M, typename Decoded>
absl::Status ReadRequest(const grpc::ByteBuffer& bytes, const DecodeScope& scope, M* message,
                         Decoded* out) {
  *out = Decoded();
  out->slices = SliceView(bytes, scope.budget);
  out->regions = RequestRegions(scope);
  absl::Status status = wire::Parse(&out->slices, message);
  status.Update(ConvertRequestId(message->request_id, &out->request.call));
  return status;
}

absl::Status ConvertPriority(int32_t priority, CallContext* out);
absl::Status ConvertTimeout(int32_t timeout_ms, std::optional<std::chrono::milliseconds>* out);

// `field` is the tensor's path, such as "query". Its bytes become out->pieces, or, if they are in a
// shared-memory region, out->file, which `regions` keeps open. Refuses an absent tensor.
absl::Status ConvertTensor(const wire::Tensor& tensor, std::string_view field,
                           RequestRegions& regions, TensorInput* out);
absl::Status ConvertTensor(const std::optional<wire::Tensor>& tensor, std::string_view field,
                           RequestRegions& regions, TensorInput* out);

// Leaves *out, the default, if the request names no kernel.
absl::Status ConvertKernel(const wire::Kernel& kernel, CastTensorsFrom tensors,
                           RequestRegions& regions, std::optional<Kernel>* out);

absl::Status UnknownValue(std::string_view field, int32_t value);

// Looks the value up in a table of enums.h; zero leaves *out, the default.
template <typename Wire, typename Ours, size_t kRows>
absl::Status ConvertEnum(const EnumRow<Wire, Ours> (&table)[kRows], int32_t value,
                         std::string_view field, Ours* out) {
  if (value == 0) return absl::OkStatus();
  const std::optional<Ours> ours = FromWire(table, value);
  if (!ours.has_value()) return UnknownValue(field, value);
  *out = *ours;
  return absl::OkStatus();
}

// The same; zero leaves *out unset.
template <typename Wire, typename Ours, size_t kRows>
absl::Status ConvertEnum(const EnumRow<Wire, Ours> (&table)[kRows], int32_t value,
                         std::string_view field, std::optional<Ours>* out) {
  return value == 0 ? absl::OkStatus() : ConvertEnum(table, value, field, &out->emplace());
}

}  // namespace castor::server
