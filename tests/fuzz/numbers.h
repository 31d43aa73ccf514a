// Reads a fuzz target's input as numbers: small ones, those near powers of two, and any others.
// Past the end of the input, a number is 1 and a byte is 0.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace castor::fuzz {

class NumberReader {
 public:
  explicit NumberReader(std::span<const uint8_t> input) : input_(input) {}

  uint8_t Byte() {
    if (input_.empty()) return 0;
    const uint8_t byte = input_.front();
    input_ = input_.subspan(1);
    return byte;
  }

  template <typename T>
  T Raw() {
    uint8_t bytes[sizeof(T)];
    for (uint8_t& byte : bytes) byte = Byte();
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }

  int64_t Number() {
    if (input_.empty()) return 1;
    const uint8_t kind = Byte();
    if (kind < 128) return int64_t{kind} - 4;
    if (kind >= 192) return Raw<int64_t>();
    const uint64_t power = uint64_t{1} << (kind - 128);
    return static_cast<int64_t>(power + static_cast<uint64_t>(int64_t{Raw<int8_t>()}));
  }

 private:
  std::span<const uint8_t> input_;
};

}  // namespace castor::fuzz
