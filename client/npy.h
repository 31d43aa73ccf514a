// NumPy's .npy files as tensors: little-endian, C order. Format version 1.0 is written, 1.0 and 2.0
// are read.
//
// NumPy has no bfloat16: such tensors are stored as their bits, '<u2', and '<u2' is read as
// BFLOAT16. In NumPy: x = (a.astype('<u4') << 16).view('<f4').
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "castor/v1/tensor.pb.h"
#include "client/file.h"

namespace castor::client {

// INVALID_ARGUMENT for a file that is not .npy, is big-endian or in Fortran order, has a type that
// tensors do not have, or a size that does not match its shape. Errors name the path.
absl::StatusOr<v1::Tensor> ReadNpy(const std::string& path);
// Requires a tensor of a known type whose bytes fit its shape.
absl::Status WriteNpy(const std::string& path, const v1::Tensor& tensor);

// Writes a file of float32 rows of one width, row by row. The file is complete once closed. For one
// thread.
class NpyRows {
 public:
  static absl::StatusOr<NpyRows> Create(const std::string& path);

  absl::Status Append(const std::vector<float>& values);  // whole rows
  absl::Status Close(int64_t width);

 private:
  explicit NpyRows(OutputFile file) : file_(std::move(file)), rewinds_(file_.rewinds()) {}

  OutputFile file_;
  const bool rewinds_;
  int64_t values_ = 0;
  std::string kept_;  // the rows, if the file is a pipe, where the header must come first
};

}  // namespace castor::client
