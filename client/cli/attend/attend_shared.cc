#include "client/cli/attend/attend_shared.h"

#include <cstring>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/tensor.h"

namespace castor::cli {
namespace {

constexpr size_t kAlignment = 64;

size_t AlignUp(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

std::vector<v1::Tensor*> TensorsOf(v1::AttendRequest& request) {
  std::vector<v1::Tensor*> tensors = {request.mutable_query(), request.mutable_key()};
  if (!request.value_is_key_prefix()) tensors.push_back(request.mutable_value());
  if (request.has_cast()) {
    v1::Cast& cast = *request.mutable_cast();
    if (cast.has_surrogate_tokens()) tensors.push_back(cast.mutable_surrogate_tokens());
    if (cast.has_gate()) tensors.push_back(cast.mutable_gate());
  }
  if (request.has_key_bias()) tensors.push_back(request.mutable_key_bias());
  return tensors;
}

// The query's shape with the values' dimension. For shapes that make no sense the size is
// arbitrary: the server refuses them anyway.
size_t OutputBytes(const v1::AttendRequest& request) {
  std::vector<int64_t> shape = client::ShapeOf(request.query());
  const auto& value = request.value().shape();
  if (shape.empty() || (value.empty() && !request.value_is_key_prefix())) return 0;
  shape.back() = request.value_is_key_prefix() ? request.value_dim() : *value.rbegin();
  return static_cast<size_t>(client::NumElements(shape).value_or(0)) *
         client::SizeOf(request.query().dtype());
}

client::SharedMemory Create(v1::AttendRequest& request, const std::string& key_prefix) {
  size_t size = AlignUp(OutputBytes(request));
  for (const v1::Tensor* tensor : TensorsOf(request)) size += AlignUp(tensor->raw().size());
  auto memory = client::SharedMemory::Create(size, key_prefix);
  if (!memory.ok()) throw UsageError(std::string(memory.status().message()));
  return *std::move(memory);
}

}  // namespace

client::Result<std::string> SharedKeyPrefix(client::Client& client) {
  auto info = client.GetServerInfo();
  if (!info.ok()) return info.error();
  const std::string& prefix = info->limits().shared_memory_key_prefix();
  return prefix.empty() ? "/" : prefix;  // servers before this field take any key
}

SharedProblem::SharedProblem(const v1::AttendRequest& request, const std::string& key_prefix)
    : request_(request), memory_(Create(request_, key_prefix)) {
  size_t offset = 0;
  for (v1::Tensor* tensor : TensorsOf(request_)) {
    const std::string raw = std::move(*tensor->mutable_raw());
    if (!raw.empty()) std::memcpy(memory_.data() + offset, raw.data(), raw.size());
    *tensor->mutable_shared_memory() = memory_.Ref(offset, raw.size());
    offset += AlignUp(raw.size());
  }
  *request_.mutable_output() = memory_.Ref(offset, OutputBytes(request_));
}

void SharedProblem::TakeOutput(v1::AttendResponse* response) const {
  const v1::SharedMemoryRef& ref = request_.output();
  response->mutable_output()->set_raw(memory_.data() + ref.offset(),
                                      static_cast<size_t>(ref.size()));
}

}  // namespace castor::cli
