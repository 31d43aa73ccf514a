#include "engine/hf/safetensors.h"

#include <unistd.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/regular_file.h"
#include "engine/hf/castor_hf.h"
#include "engine/hf/json.h"

namespace castor::hf {
namespace {

// Files are read into memory, so a larger model cannot run on this machine.
int64_t MachineMemory() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

// Shard names come from a file that may be hostile. Plain names cannot leave the model's folder.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Pickles are programs, so they are not read.
std::string HowToConvert(const std::string& directory) {
  return absl::StrCat(
      "; pytorch_model.bin is not read. Convert it, where torch and safetensors are installed: "
      "python3 -c \"import glob, torch; from safetensors.torch import save_file; w = {}; "
      "[w.update(d.get('state_dict', d)) for d in (torch.load(f, 'cpu', weights_only=True) for f "
      "in "
      "glob.glob('pytorch_model*.bin'))]; save_file({k: (v.float() if v.dtype == torch.float64 "
      "else "
      "v).contiguous().clone() for k, v in w.items() if torch.is_tensor(v)}, "
      "'model.safetensors')\" "
      "in ",
      directory);
}

}  // namespace

void Safetensors::Close::operator()(castor_hf_safetensors* handle) const {
  castor_hf_safetensors_close(handle);
}

absl::StatusOr<std::unique_ptr<Safetensors>> Safetensors::OpenFile(const std::string& path) {
  std::unique_ptr<Safetensors> result(new Safetensors);
  if (absl::Status status = result->AddFile(path); !status.ok()) return status;
  return result;
}

absl::StatusOr<std::unique_ptr<Safetensors>> Safetensors::OpenModel(const std::string& directory) {
  const std::string single = absl::StrCat(directory, "/model.safetensors");
  const std::string index = absl::StrCat(directory, "/model.safetensors.index.json");
  if (NameExists(single)) return OpenFile(single);
  if (!NameExists(index)) {
    const bool pickled = NameExists(absl::StrCat(directory, "/pytorch_model.bin")) ||
                         NameExists(absl::StrCat(directory, "/pytorch_model.bin.index.json"));
    return absl::NotFoundError(absl::StrCat(
        directory, ": holds neither model.safetensors nor model.safetensors.index.json",
        pickled ? HowToConvert(directory) : ""));
  }
  std::unique_ptr<Safetensors> result(new Safetensors);
  if (absl::Status status = result->AddShards(directory, index); !status.ok()) return status;
  return result;
}

const StoredTensor* Safetensors::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::Status Safetensors::AddFile(const std::string& path) {
  const absl::StatusOr<RegularFile> file = RegularFile::Open(path, MachineMemory());
  if (!file.ok()) return file.status();
  castor_hf_safetensors* handle = nullptr;
  if (char* error = castor_hf_safetensors_open(file->descriptor(),
                                               static_cast<uint64_t>(file->size()), &handle)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", TakeError(error)));
  }
  files_.push_back(
      std::make_unique<const File>(path, std::unique_ptr<castor_hf_safetensors, Close>(handle)));
  for (size_t i = 0; i < castor_hf_safetensors_count(handle); ++i) {
    castor_hf_tensor raw{};
    castor_hf_safetensors_get(handle, i, &raw);
    const std::string name(reinterpret_cast<const char*>(raw.name), raw.name_size);
    StoredTensor tensor{
        .dtype = {reinterpret_cast<const char*>(raw.dtype), raw.dtype_size},
        .shape = {},
        .data = {reinterpret_cast<const std::byte*>(raw.data), raw.data_size},
        .file = files_.back()->path,
    };
    // A dimension exceeds int64 only if another is 0; no model has such a tensor.
    for (size_t d = 0; d < raw.dimensions; ++d) {
      if (raw.shape[d] > INT64_MAX) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": ", name, ": dimension out of range"));
      }
      tensor.shape.push_back(static_cast<int64_t>(raw.shape[d]));
    }
    if (!tensors_.emplace(name, std::move(tensor)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", name, ": is in another shard as well"));
    }
  }
  return absl::OkStatus();
}

absl::Status Safetensors::AddShards(const std::string& directory, const std::string& index) {
  absl::StatusOr<nlohmann::json> json = ReadJson(index);
  if (!json.ok()) return json.status();
  const auto map = json->find("weight_map");
  if (map == json->end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(index, ": weight_map: missing or empty"));
  }
  std::set<std::string> shards;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get<std::string>())) {
      return absl::InvalidArgumentError(
          absl::StrCat(index, ": weight_map: ", name, ": is not a plain file name"));
    }
    shards.insert(file.get<std::string>());
  }
  for (const std::string& shard : shards) {
    if (absl::Status status = AddFile(absl::StrCat(directory, "/", shard)); !status.ok()) {
      return status;
    }
  }
  for (const auto& [name, file] : map->items()) {
    const StoredTensor* tensor = Find(name);
    if (tensor == nullptr ||
        tensor->file != absl::StrCat(directory, "/", file.get<std::string>())) {
      return absl::InvalidArgumentError(
          absl::StrCat(index, ": weight_map: ", name, ": is not in ", file.get<std::string>()));
    }
  }
  return absl::OkStatus();
}

}  // namespace castor::hf
