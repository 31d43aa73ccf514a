#include "engine/encoder/directory/cast_file.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/attention/finite.h"
#include "engine/base/dtype.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {
namespace {

constexpr int64_t kMaxDimension = std::numeric_limits<int32_t>::max();

absl::Status Fail(const hf::StoredTensor& tensor, const std::string& name, const char* problem) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(tensor.file), ": ", name, " ", problem));
}

// Elements of a stored type as float32.
template <typename Element>
std::vector<float> ToFloats(std::span<const std::byte> data) {
  std::vector<float> floats(data.size() / sizeof(Element));
  for (size_t i = 0; i < floats.size(); ++i) {
    Element element;
    std::memcpy(&element, data.data() + i * sizeof(Element), sizeof(Element));
    floats[i] = static_cast<float>(element);
  }
  return floats;
}

absl::StatusOr<std::shared_ptr<const attention::CastLayer>> ReadLayer(
    const hf::StoredTensor& tensor, const std::string& name) {
  if (tensor.shape.size() != 3) return Fail(tensor, name, "is not [N_c, heads, head_dim]");
  for (int64_t dimension : tensor.shape) {
    if (dimension < 1 || dimension > kMaxDimension) {
      return Fail(tensor, name, "has a dimension that is not 1 to 2^31 - 1");
    }
  }
  std::vector<float> elements;
  if (tensor.dtype == "F32") {
    elements = ToFloats<float>(tensor.data);
  } else if (tensor.dtype == "F16") {
    elements = ToFloats<c10::Half>(tensor.data);
  } else if (tensor.dtype == "BF16") {
    elements = ToFloats<c10::BFloat16>(tensor.data);
  } else {
    return Fail(tensor, name, "is stored as none of F32, F16, BF16");
  }
  if (attention::FindNonFinite(DType::kFloat32, std::as_bytes(std::span(elements)))) {
    return Fail(tensor, name, "holds NaN or Inf");
  }
  return std::make_shared<const attention::CastLayer>(elements.data(), tensor.shape[0],
                                                      tensor.shape[1], tensor.shape[2]);
}

}  // namespace

bool IsCastFile(const std::string& path) { return absl::EndsWith(path, ".safetensors"); }

absl::StatusOr<CastFile> ReadCastFile(const ModelSource& source) {
  absl::StatusOr<std::unique_ptr<hf::Safetensors>> file =
      hf::Safetensors::OpenFile(source.directory);
  if (!file.ok()) return file.status();
  CastFile read;
  ModelInfo& info = read.info;
  while (true) {
    const std::string name = absl::StrCat("layers.", read.layers.size(), ".surrogate_tokens");
    const hf::StoredTensor* tensor = (*file)->Find(name);
    if (tensor == nullptr) break;
    auto layer = ReadLayer(*tensor, name);
    if (!layer.ok()) return layer.status();
    info.parameters += (*layer)->elements();
    read.layers.push_back(*std::move(layer));
  }
  if (read.layers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.directory,
                     ": holds no layers.0.surrogate_tokens; a single file is read "
                     "as CAST layers, an encoder is a directory"));
  }
  info.name = source.name;
  info.family = "cast_layers";
  info.dtype = DType::kFloat32;
  info.layers = static_cast<int32_t>(read.layers.size());
  info.heads = static_cast<int32_t>(read.layers.front()->heads());
  info.hidden_size = read.layers.front()->heads() * read.layers.front()->head_dim();
  info.kernels = {KernelName::kCast};
  info.weight_bytes = info.parameters * 8;  // once in each floating type
  return read;
}

}  // namespace castor::encoder
