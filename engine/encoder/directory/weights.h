// Takes weights out of a checkpoint by name, checks their shapes and puts them on the device.
//
// The first error sticks: take everything, then check status(). After an error the tensors returned
// are undefined and must not be used.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {

class AdapterReader;  // adapters.h

// A stored tensor of exactly `shape`, or these rows of it, as `dtype` on the host. NaN and Inf are
// errors. `name`: for messages.
absl::StatusOr<at::Tensor> ReadTensor(const hf::StoredTensor& stored, std::string_view name,
                                      const std::vector<int64_t>& shape, at::ScalarType dtype,
                                      std::span<const int64_t> rows = {});

class WeightReader {
 public:
  // `files` must outlive the reader. Weights become `dtype` on `device`. `int8`: linear layers
  // quantize their weights to 8 bits.
  WeightReader(const hf::Safetensors& files, std::string directory, at::ScalarType dtype,
               at::Device device, bool int8 = false)
      : files_(files),
        directory_(std::move(directory)),
        dtype_(dtype),
        device_(device),
        int8_(int8) {}

  // Picks the prefix of all later names: the first of `candidates` under which `probe` is stored. A
  // checkpoint as a whole is saved with or without its family's prefix.
  void ChoosePrefix(std::string_view probe, std::span<const std::string_view> candidates);

  const std::string& prefix() const { return prefix_; }

  // Whether the checkpoint stores the tensor, under the prefix.
  bool Has(std::string_view name) const { return Find(prefix_ + std::string(name)) != nullptr; }

  // The tensor `name`, of exactly `shape`; or these rows of it, and the others are not read. NaN
  // and Inf are errors.
  at::Tensor Take(std::string_view name, std::vector<int64_t> shape,
                  std::span<const int64_t> rows = {});

  // Stacks matrices of [rows[i], columns], or vectors of [rows[i]] if `columns` is 0, along their
  // rows.
  at::Tensor TakeStacked(std::span<const std::string> names, std::span<const int64_t> rows,
                         int64_t columns);

  const absl::Status& status() const { return status_; }
  // The adapters of the weights taken; null: none.
  void set_adapters(AdapterReader* adapters) { adapters_ = adapters; }
  AdapterReader* adapters() const { return adapters_; }

  bool int8() const { return int8_; }
  at::Device device() const { return device_; }
  int64_t parameters() const { return parameters_; }
  int64_t bytes() const { return bytes_; }  // on the device

  // Records that this many of the weights taken were packed into 8 bits each.
  void CountInt8(int64_t weights) { bytes_ -= weights * 3; }

  // Records that this many elements are on the device once more.
  void CountCopies(int64_t elements) {
    bytes_ += elements * static_cast<int64_t>(c10::elementSize(dtype_));
  }

 private:
  const hf::StoredTensor* Find(const std::string& name) const;
  at::Tensor TakeOnHost(std::string_view name, const std::vector<int64_t>& shape,
                        std::span<const int64_t> rows = {});
  at::Tensor ToDevice(const at::Tensor& tensor);  // counts it as well
  void Fail(std::string_view where, std::string_view problem);

  const hf::Safetensors& files_;
  const std::string directory_;
  const at::ScalarType dtype_;
  const at::Device device_;
  const bool int8_;
  AdapterReader* adapters_ = nullptr;
  std::string prefix_;
  absl::Status status_;
  int64_t parameters_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace castor::encoder
