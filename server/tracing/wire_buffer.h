// Bytes that grow at their end, for what is written in many small pieces: std::string would check
// and call for each. For one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

namespace castor::server {

class WireBuffer {
 public:
  // Room for `size` more bytes, which the caller fills.
  char* Grow(size_t size) {
    if (capacity_ - size_ < size) Enlarge(size);
    char* const room = bytes_.get() + size_;
    size_ += size;
    return room;
  }

  void Append(std::string_view bytes) {
    if (!bytes.empty()) std::memcpy(Grow(bytes.size()), bytes.data(), bytes.size());
  }

  void Clear() { size_ = 0; }

  std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  void Enlarge(size_t size) {
    capacity_ = std::max(2 * capacity_, size_ + size);
    std::unique_ptr<char[]> larger(new char[capacity_]);
    std::memcpy(larger.get(), bytes_.get(), size_);
    bytes_ = std::move(larger);
  }

  size_t size_ = 0;
  size_t capacity_ = 1024;
  std::unique_ptr<char[]> bytes_{new char[capacity_]};
};

}  // namespace castor::server
