// NumPy's .npy files as tensors: little-endian, C order. Format version 1.0 is written, 1.0 and 2.0
// are read.
//
// NumPy has no bfloat16: such tensors are stored as their bits, '<u2', and '<u2' is read as
// BFLOAT16. In NumPy: x = (a.astype('<u4') << 16).view('<f4').
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "castor/v1/tensor.pb.h"

namespace castor::client {

// The file's bytes. INVALID_ARGUMENT says what is wrong: not .npy, big-endian, Fortran order, a
// type that tensors do not have, a size that does not match the shape.
absl::StatusOr<v1::Tensor> ParseNpy(std::string_view bytes);

// The bytes of a file; requires a tensor of a known type whose bytes fit its shape.
std::string FormatNpy(const v1::Tensor& tensor);

// The same on files; errors name the path.
absl::StatusOr<v1::Tensor> ReadNpy(const std::string& path);
absl::Status WriteNpy(const std::string& path, const v1::Tensor& tensor);

}  // namespace castor::client
