#include "client/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/tensor.h"

namespace castor::client {
namespace {

absl::Status Failed(const char* what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::generic_category().message(error));
  return error == ENOSPC || error == ENOMEM || error == EMFILE || error == ENFILE
             ? absl::ResourceExhaustedError(message)
             : absl::UnavailableError(message);
}

std::string DrawKey(std::string_view prefix) {
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  return std::string(prefix) +
         absl::StrCat("castor-", getpid(), "-", absl::Hex(number, absl::kZeroPad16));
}

// Allocates all of the file's memory, so that no later access can fail.
int Reserve(int descriptor, size_t size) {
  int error;
  do {
    error = posix_fallocate(descriptor, 0, static_cast<off_t>(size));
  } while (error == EINTR);
  return error;
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Create(size_t size, std::string_view key_prefix) {
  if (size == 0) return absl::InvalidArgumentError("shared memory needs at least 1 byte");
  SharedMemory memory;
  int descriptor;
  do {
    memory.key_ = DrawKey(key_prefix);
    descriptor = shm_open(memory.key_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (descriptor < 0 && errno == EEXIST);
  if (descriptor < 0) {
    memory.key_.clear();  // nothing to remove
    return Failed("cannot create a shared-memory object", errno);
  }
  const int error = Reserve(descriptor, size);
  void* data = MAP_FAILED;
  if (error == 0) {
    data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  const int map_error = errno;
  close(descriptor);
  if (error != 0) return Failed("cannot reserve shared memory", error);
  if (data == MAP_FAILED) return Failed("cannot map shared memory", map_error);
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = size;
  return memory;
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(key_, other.key_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  if (!key_.empty()) shm_unlink(key_.c_str());
}

v1::SharedMemoryRef SharedMemory::Ref(size_t offset, size_t size) const {
  v1::SharedMemoryRef ref;
  ref.set_region(name());
  ref.set_offset(static_cast<int64_t>(offset));
  ref.set_size(static_cast<int64_t>(size));
  return ref;
}

v1::Tensor SharedMemory::MakeTensor(size_t offset, v1::DataType dtype,
                                    std::span<const int64_t> shape) const {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  const size_t size = static_cast<size_t>(NumElements(shape).value_or(0)) * SizeOf(dtype);
  *tensor.mutable_shared_memory() = Ref(offset, size);
  return tensor;
}

}  // namespace castor::client
