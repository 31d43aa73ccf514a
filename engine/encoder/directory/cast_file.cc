#include "engine/encoder/directory/cast_file.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/encoder/directory/weights.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {
namespace {

bool IsDimension(int64_t size) { return size >= 1 && size <= std::numeric_limits<int32_t>::max(); }

}  // namespace

bool IsCastFile(const std::string& path) { return absl::EndsWith(path, ".safetensors"); }

absl::StatusOr<CastFile> ReadCastFile(const ModelSource& source) {
  absl::StatusOr<std::unique_ptr<hf::Safetensors>> file =
      hf::Safetensors::OpenFile(source.directory);
  if (!file.ok()) return file.status();
  WeightReader weights(**file, source.directory, at::kFloat, at::kCPU);
  CastFile read;
  ModelInfo& info = read.info;
  while (true) {
    const std::string name = absl::StrCat("layers.", read.layers.size(), ".surrogate_tokens");
    const hf::StoredTensor* tensor = (*file)->Find(name);
    if (tensor == nullptr) break;
    const std::vector<int64_t>& shape = tensor->shape;
    if (shape.size() != 3 || !std::all_of(shape.begin(), shape.end(), IsDimension)) {
      return absl::InvalidArgumentError(
          absl::StrCat(source.directory, ": ", name,
                       ": must be [N_c, heads, head_dim], each of them 1 to 2^31 - 1"));
    }
    const at::Tensor elements = weights.Take(name, shape);
    if (!weights.status().ok()) return weights.status();
    read.layers.push_back(std::make_shared<const attention::CastLayer>(
        elements.const_data_ptr<float>(), shape[0], shape[1], shape[2]));
    info.parameters += read.layers.back()->elements();
  }
  if (read.layers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.directory,
                     ": holds no layers.0.surrogate_tokens; a single file is read "
                     "as CAST layers, and an encoder must be a directory"));
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
