#include "tests/support/heap_meter.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

// The C library's own, under the names that it keeps for programs that replace them.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* data, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* data);
}

namespace castor {
namespace {

std::atomic<int64_t> in_use{0};
std::atomic<int64_t> most{0};

void Add(int64_t bytes) {
  const int64_t now = in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t before = most.load(std::memory_order_relaxed);
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
}

int64_t SizeOfBlock(void* data) { return static_cast<int64_t>(malloc_usable_size(data)); }

void* Counted(void* data) {
  if (data != nullptr) Add(SizeOfBlock(data));
  return data;
}

void Uncount(void* data) {
  if (data != nullptr) in_use.fetch_sub(SizeOfBlock(data), std::memory_order_relaxed);
}

}  // namespace

HeapMeter::HeapMeter() : before_(in_use) { most = before_; }

int64_t HeapMeter::peak() const { return most - before_; }

}  // namespace castor

extern "C" {

void* malloc(size_t size) { return castor::Counted(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return castor::Counted(__libc_calloc(count, size)); }
void* memalign(size_t alignment, size_t size) {
  return castor::Counted(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** data, size_t alignment, size_t size) {
  *data = memalign(alignment, size);
  return *data == nullptr ? ENOMEM : 0;
}
void* realloc(void* data, size_t size) {
  castor::Uncount(data);
  void* const moved = __libc_realloc(data, size);
  if (moved == nullptr && size > 0) castor::Counted(data);  // it stays as it was
  return castor::Counted(moved);
}
void free(void* data) {
  castor::Uncount(data);
  __libc_free(data);
}

}  // extern "C"
