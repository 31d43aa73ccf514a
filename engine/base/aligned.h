// Memory for vector instructions, aligned to 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace castor {

struct FreeAligned {
  static constexpr std::align_val_t kAlignment{64};

  template <typename T>
  void operator()(T* memory) const {
    ::operator delete[](memory, kAlignment);
  }
};

// The least multiple of the alignment that holds `size` bytes.
constexpr size_t AlignUp(size_t size) {
  constexpr auto kUnit = static_cast<size_t>(FreeAligned::kAlignment);
  return (size + kUnit - 1) / kUnit * kUnit;
}

// An uninitialised array. T must need no destructor.
template <typename T>
using AlignedArray = std::unique_ptr<T[], FreeAligned>;

template <typename T>
AlignedArray<T> AllocateAligned(int64_t count) {
  return AlignedArray<T>(new (FreeAligned::kAlignment) T[static_cast<size_t>(count)]);
}

}  // namespace castor
