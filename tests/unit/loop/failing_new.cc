#include "tests/unit/loop/failing_new.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace castor {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

std::atomic<int64_t> left = kNever;  // allocations until one fails
std::atomic<bool> permanent = false;
std::atomic<size_t> at_least = 0;
std::atomic<bool> failed = false;
std::atomic<int64_t> live = 0;

bool MustFail(size_t size) {
  if (left.load() == kNever || size < at_least) return false;
  const int64_t before = left.fetch_sub(1);
  if (before > 0 || (before < 0 && !permanent)) return false;
  failed = true;
  return true;
}

void* New(size_t size, size_t alignment) {
  if (MustFail(size)) throw std::bad_alloc();
  size = std::max<size_t>(size, 1);
  void* const data =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  ++live;
  return data;
}

void Delete(void* data) {
  if (data == nullptr) return;
  --live;
  std::free(data);
}

}  // namespace

void FailAllocations(const Failing& failing) {
  failed = false;
  permanent = failing.permanent;
  at_least = failing.at_least;
  left = failing.after;
}

bool StopFailing() {
  left = kNever;
  return failed;
}

int64_t LiveAllocations() { return live; }

}  // namespace castor

// The library's other forms call these two.
void* operator new(size_t size) { return castor::New(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return castor::New(size, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept { castor::Delete(data); }
void operator delete(void* data, size_t) noexcept { castor::Delete(data); }
void operator delete(void* data, std::align_val_t) noexcept { castor::Delete(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { castor::Delete(data); }
