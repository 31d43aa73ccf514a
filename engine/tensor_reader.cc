#include "engine/tensor_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "engine/base/error.h"

namespace castor {

std::string DataField(const TensorInput& input, std::string_view field) {
  return std::string(field) + (input.file.has_value() ? ".shared_memory" : ".raw");
}

absl::Status TensorReader::Read(size_t size, std::byte* out) {
  if (input_.file.has_value()) return ReadFile(size, out);
  TakePieces(size, [&](const std::byte* data, size_t count) {
    std::memcpy(out, data, count);
    out += count;
  });
  return absl::OkStatus();
}

void TensorReader::Skip(size_t size) {
  if (input_.file.has_value()) {
    used_ += size;
  } else {
    TakePieces(size, [](const std::byte*, size_t) {});
  }
}

template <typename Use>
void TensorReader::TakePieces(size_t size, Use use) {
  while (size > 0) {
    const auto piece = input_.pieces[piece_].subspan(used_);
    const size_t count = std::min(size, piece.size());
    if (count > 0) use(piece.data(), count);
    size -= count;
    used_ += count;
    if (count == piece.size()) {
      ++piece_;
      used_ = 0;
    }
  }
}

absl::Status TensorReader::ReadFile(size_t size, std::byte* out) {
  const FileRange& file = *input_.file;
  while (size > 0) {
    const ssize_t got = pread(file.descriptor, out, size, static_cast<off_t>(file.offset + used_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return InvalidField(DataField(input_, field_),
                          "cannot be read: " + std::generic_category().message(errno));
    }
    if (got == 0) {
      return InvalidField(DataField(input_, field_),
                          "the shared memory ends " +
                              std::to_string(file.size - static_cast<int64_t>(used_)) +
                              " bytes before the tensor: it was truncated after its registration");
    }
    out += got;
    used_ += static_cast<size_t>(got);
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace castor
