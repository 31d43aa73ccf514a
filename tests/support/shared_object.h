// A POSIX shared-memory object with a unique name, as a client would create it; tests modify and
// resize it as they like.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace castor {

class SharedObject {
 public:
  // Its key is "/" and `prefix`, and then some more.
  explicit SharedObject(int64_t size, const std::string& prefix = "") : key_(DrawKey(prefix)) {
    descriptor_ = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_GE(descriptor_, 0) << key_;
    Cut(size);
  }
  ~SharedObject() {
    shm_unlink(key_.c_str());
    close(descriptor_);
  }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  const std::string& key() const { return key_; }
  int descriptor() const { return descriptor_; }

  int64_t size() const {
    struct stat status {};
    EXPECT_EQ(fstat(descriptor_, &status), 0);
    return status.st_size;
  }
  // Resizes it; new bytes are zero.
  void Cut(int64_t size) const { EXPECT_EQ(ftruncate(descriptor_, size), 0); }

  void Write(int64_t offset, std::span<const std::byte> bytes) const {
    EXPECT_EQ(pwrite(descriptor_, bytes.data(), bytes.size(), offset),
              static_cast<ssize_t>(bytes.size()));
  }
  void Write(int64_t offset, const std::string& bytes) const {
    Write(offset, std::as_bytes(std::span(bytes)));
  }
  std::string Read(int64_t offset, int64_t size) const {
    std::string bytes(static_cast<size_t>(size), '\0');
    EXPECT_EQ(pread(descriptor_, bytes.data(), bytes.size(), offset), size);
    return bytes;
  }

 private:
  static std::string DrawKey(const std::string& prefix) {
    static std::atomic<int> made = 0;
    return "/" + prefix + "castor-test-" + std::to_string(getpid()) + "-" + std::to_string(made++);
  }

  const std::string key_;
  int descriptor_ = -1;
};

}  // namespace castor
