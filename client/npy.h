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

// INVALID_ARGUMENT says what is wrong with the file: not .npy, big-endian, Fortran order, a type
// that tensors do not have, a size that does not match the shape. Errors name the path.
absl::StatusOr<v1::Tensor> ReadNpy(const std::string& path);
// Requires a tensor of a known type whose bytes fit its shape.
absl::Status WriteNpy(const std::string& path, const v1::Tensor& tensor);

// A file of float32 rows of one width that is written row by row. It is whole once closed. For one
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
  std::string kept_;  // where the header cannot be written last, as in a pipe: the rows
};

}  // namespace castor::client
