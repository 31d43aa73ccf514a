#include "engine/encoder/directory/weights.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/attention/finite.h"
#include "engine/attention/parallel.h"
#include "engine/attention/scalar_type.h"
#include "engine/base/dtype.h"
#include "engine/base/run_control.h"

namespace castor::encoder {
namespace {

std::optional<DType> TypeOf(std::string_view dtype) {
  if (dtype == "F32") return DType::kFloat32;
  if (dtype == "F16") return DType::kFloat16;
  if (dtype == "BF16") return DType::kBFloat16;
  return std::nullopt;
}

// `tensor` must be on the host.
std::optional<size_t> FindNonFinite(DType dtype, const at::Tensor& tensor) {
  return attention::FindNonFinite(
      dtype, {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
}

// Copies a tensor's elements. The index of the first one that is NaN or Inf.
std::optional<size_t> CopyAndCheck(DType dtype, std::span<const std::byte> from, void* to) {
  constexpr size_t kTaskBytes = 1 << 20;
  constexpr double kOperations = 1;  // per byte
  std::atomic<size_t> first = from.size();
  const auto run = [&](int, int64_t task) {
    const size_t begin = static_cast<size_t>(task) * kTaskBytes;
    const auto part = from.subspan(begin, std::min(kTaskBytes, from.size() - begin));
    const std::span copy(static_cast<std::byte*>(to) + begin, part.size());
    std::memcpy(copy.data(), part.data(), part.size());
    const auto found = attention::FindNonFinite(dtype, copy);
    if (!found) return;
    const size_t index = begin / SizeOf(dtype) + *found;
    for (size_t least = first; index < least && !first.compare_exchange_weak(least, index);) {
    }
  };
  (void)attention::ParallelFor(static_cast<int64_t>((from.size() + kTaskBytes - 1) / kTaskBytes),
                               kOperations * static_cast<double>(from.size()), RunToEnd(), run);
  return first < from.size() ? std::optional<size_t>(first) : std::nullopt;
}

}  // namespace

absl::StatusOr<at::Tensor> ReadTensor(const hf::StoredTensor& stored, std::string_view name,
                                      const std::vector<int64_t>& shape, at::ScalarType dtype,
                                      std::span<const int64_t> rows) {
  const auto fail = [&](std::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(stored.file), ": ",
                                                   std::string(name), ": ", std::string(problem)));
  };
  const std::optional<DType> type = TypeOf(stored.dtype);
  if (!type.has_value()) {
    return fail("dtype " + std::string(stored.dtype) + " is not supported; F32, F16, BF16 are");
  }
  if (stored.shape != shape) {
    return fail("shape is " + ShapeString(stored.shape) + ", config.json implies " +
                ShapeString(shape));
  }
  std::vector<int64_t> taken = shape;
  if (!rows.empty()) taken[0] = std::ssize(rows);
  at::Tensor tensor = at::empty(taken, at::TensorOptions().dtype(attention::ScalarTypeOf(*type)));
  const size_t row = stored.data.size() / shape[0];
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(static_cast<std::byte*>(tensor.mutable_data_ptr()) + i * row,
                stored.data.data() + rows[i] * row, row);
  }
  const std::optional<size_t> found =
      rows.empty() ? CopyAndCheck(*type, stored.data, tensor.mutable_data_ptr())
                   : FindNonFinite(*type, tensor);
  if (found.has_value()) {
    return fail(absl::StrCat("element ", *found, " is NaN or Inf"));
  }
  if (dtype == tensor.scalar_type()) return tensor;
  tensor = tensor.to(dtype);
  const DType served = dtype == at::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
  if (const auto found = FindNonFinite(served, tensor)) {  // rounded up to Inf
    return fail(
        absl::StrCat("element ", *found, " is too large for ", std::string(NameOf(served))));
  }
  return tensor;
}

void WeightReader::Fail(std::string_view where, std::string_view problem) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(std::string(where) + ": " + std::string(problem));
}

void WeightReader::ChoosePrefix(std::string_view probe,
                                std::span<const std::string_view> candidates) {
  for (const std::string_view candidate : candidates) {
    if (Find(std::string(candidate) + std::string(probe)) == nullptr) continue;
    prefix_ = candidate;
    return;
  }
  Fail(directory_, "model.safetensors, or its shards, hold no tensor \"" + std::string(probe) +
                       "\" with or without the family's prefix");
}

const hf::StoredTensor* WeightReader::Find(const std::string& name) const {
  if (const hf::StoredTensor* tensor = files_.Find(name)) return tensor;
  // The original checkpoints of BERT call them gamma and beta; those with torch's parametrizations,
  // such as jina-embeddings-v3's adapters, hold the weights as they were before these.
  for (const auto& [now, before] : {std::pair<std::string_view, std::string_view>  //
                                    {"LayerNorm.weight", "LayerNorm.gamma"},
                                    {"LayerNorm.bias", "LayerNorm.beta"},
                                    {".weight", ".parametrizations.weight.original"}}) {
    if (!name.ends_with(now) || (now == ".weight" && adapters_ == nullptr)) continue;
    const std::string other = name.substr(0, name.size() - now.size()) + std::string(before);
    if (const hf::StoredTensor* tensor = files_.Find(other)) return tensor;
  }
  return nullptr;
}

at::Tensor WeightReader::TakeOnHost(std::string_view name, const std::vector<int64_t>& shape,
                                    std::span<const int64_t> rows) {
  const std::string full = prefix_ + std::string(name);
  const hf::StoredTensor* stored = Find(full);
  if (stored == nullptr) {
    Fail(directory_, "the weights lack the tensor \"" + full + "\", which config.json requires");
    return {};
  }
  absl::StatusOr<at::Tensor> tensor = ReadTensor(*stored, full, shape, dtype_, rows);
  if (tensor.ok()) return *std::move(tensor);
  if (status_.ok()) status_ = tensor.status();
  return {};
}

at::Tensor WeightReader::ToDevice(const at::Tensor& tensor) {
  parameters_ += tensor.numel();
  bytes_ += static_cast<int64_t>(tensor.nbytes());
  return tensor.to(device_);
}

at::Tensor WeightReader::Take(std::string_view name, std::vector<int64_t> shape,
                              std::span<const int64_t> rows) {
  if (!status_.ok()) return {};
  const at::Tensor tensor = TakeOnHost(name, shape, rows);
  return status_.ok() ? ToDevice(tensor) : at::Tensor();
}

at::Tensor WeightReader::TakeStacked(std::span<const std::string> names,
                                     std::span<const int64_t> rows, int64_t columns) {
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!status_.ok()) return {};
    parts.push_back(TakeOnHost(names[i], columns > 0 ? std::vector<int64_t>{rows[i], columns}
                                                     : std::vector<int64_t>{rows[i]}));
  }
  return status_.ok() ? ToDevice(at::cat(parts, 0)) : at::Tensor();
}

}  // namespace castor::encoder
