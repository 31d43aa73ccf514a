// How much memory a piece of code takes from the C library's heap at most, on all threads: its own
// allocations and those of the libraries that it calls. Only for programs that link heap_meter.cc,
// which replaces malloc and its relatives; sanitizers have their own.
#pragma once

#include <cstdint>

namespace castor {

// From its construction on. One at a time.
class HeapMeter {
 public:
  HeapMeter();

  // The most that was in use at a time so far, beyond what was in use at first.
  int64_t peak() const;

 private:
  const int64_t before_;
};

}  // namespace castor
