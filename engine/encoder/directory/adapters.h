// Takes a model's adapters out of files: low-rank pairs (LoRA; Hu et al. 2021, arXiv 2106.09685) by
// task, of matrices that become W x + scale B (A x). They come from folders as PEFT saves them, or
// stacked by task in the model's own files, as those of jina-embeddings-v3 do, which has adapters
// of its embeddings too.
//
// The first error sticks: take everything, then call Finish.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {

class AdapterReader {
 public:
  // Factors become `dtype` on `device`.
  AdapterReader(at::ScalarType dtype, at::Device device) : dtype_(dtype), device_(device) {}

  // The tasks that config.json lists: of jina-embeddings-v3, whose tensors `files` hold, and of
  // jina-embeddings-v5, in folders below `folder`, that of config.json.
  void AddOwn(ConfigReader& config, const hf::Safetensors& files, const std::string& folder);

  // A folder with adapter_config.json and adapter_model.safetensors.
  void AddPeft(const std::string& task, const std::string& folder);

  // Modules may be stored under any of these.
  void SetPrefixes(std::span<const std::string_view> prefixes) {
    prefixes_.assign(prefixes.begin(), prefixes.end());
  }

  const std::vector<std::string>& tasks() const { return tasks_; }

  struct Factors {  // undefined: the task leaves the matrix alone
    at::Tensor a;   // [rank, in]
    at::Tensor b;   // [out, rank], times the scale
  };

  // Of each task, the adapter of the matrices `names` of out[i] rows each, stacked along their
  // rows; nothing if no task has one. A `table` of embeddings has the rows of `in`, and is stored
  // with both factors transposed.
  std::vector<Factors> Take(std::span<const std::string> names, std::span<const int64_t> out,
                            int64_t in, bool table = false);

  // An error if there was one, or if a tensor was not taken. `pooler`: the model's pooler has a
  // part in its answers.
  absl::Status Finish(bool pooler) const;

  int64_t parameters() const { return parameters_; }
  int64_t bytes() const { return bytes_; }  // on the device

 private:
  struct Module {
    std::string name;  // of `a`, for messages
    hf::StoredTensor a, b;
    int64_t rank = 0;
    double scale = 1;
    bool taken = false;
  };
  using Modules = std::map<std::string, Module>;

  void AddStacked(const std::vector<std::string>& tasks, const hf::Safetensors& files,
                  const std::string& folder, int64_t rank, double alpha);
  Modules* AddTask(const std::string& where, const std::string& task);
  Module* Find(size_t task, const std::string& name);
  at::Tensor Read(const hf::StoredTensor& stored, const Module& module, std::vector<int64_t> shape,
                  bool turned);
  void Fail(const std::string& where, const std::string& problem);

  const at::ScalarType dtype_;
  const at::Device device_;
  std::vector<std::string> prefixes_;
  std::vector<std::unique_ptr<hf::Safetensors>> files_;
  std::vector<std::string> tasks_;
  std::vector<std::unique_ptr<Modules>> modules_;  // by task
  absl::Status status_;
  int64_t parameters_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace castor::encoder
