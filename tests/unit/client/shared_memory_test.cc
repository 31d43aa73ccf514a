#include "client/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace castor::client {
namespace {

// The bytes that another process reads under the key; "none" if there is no object.
std::string Contents(const std::string& key) {
  const int descriptor = shm_open(key.c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (descriptor < 0) return "none";
  struct stat status {};
  EXPECT_EQ(fstat(descriptor, &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u) << "nobody else's";
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  EXPECT_EQ(pread(descriptor, bytes.data(), bytes.size(), 0), status.st_size);
  close(descriptor);
  return bytes;
}

TEST(SharedMemoryTest, IsSeenUnderItsKeyWhileItLives) {
  std::string key;
  {
    auto memory = SharedMemory::Create(10);
    ASSERT_TRUE(memory.ok()) << memory.status();
    key = memory->key();
    EXPECT_EQ(key.substr(1), memory->name());
    EXPECT_EQ(memory->size(), 10u);
    EXPECT_EQ(Contents(key), std::string(10, '\0'));
    std::memcpy(memory->data() + 2, "beaver", 6);
    EXPECT_EQ(Contents(key).substr(2, 6), "beaver");
  }
  EXPECT_EQ(Contents(key), "none");
}

TEST(SharedMemoryTest, MovesWithItsName) {
  auto first = SharedMemory::Create(10);
  auto second = SharedMemory::Create(20);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::string kept = first->key();
  const std::string dropped = second->key();
  {
    SharedMemory moved = *std::move(first);
    *second = std::move(moved);
  }
  EXPECT_EQ(second->key(), kept);
  EXPECT_EQ(second->size(), 10u);
  EXPECT_EQ(Contents(kept).size(), 10u);
  EXPECT_EQ(Contents(dropped), "none") << "gone with what it was moved to";
}

TEST(SharedMemoryTest, EveryOneHasANameOfItsOwn) {
  std::vector<SharedMemory> all;
  std::set<std::string> keys;
  for (int i = 0; i < 20; ++i) {
    auto memory = SharedMemory::Create(1);
    ASSERT_TRUE(memory.ok()) << memory.status();
    keys.insert(memory->key());
    all.push_back(*std::move(memory));
  }
  EXPECT_EQ(keys.size(), 20u);
}

TEST(SharedMemoryTest, NoRoomIsAnErrorAndLeavesNothing) {
  EXPECT_EQ(SharedMemory::Create(0).status().code(), absl::StatusCode::kInvalidArgument);
  const auto memory = SharedMemory::Create(size_t{1} << 60);
  EXPECT_FALSE(memory.ok());
  EXPECT_NE(memory.status().message(), "");
}

TEST(SharedMemoryTest, TensorsReferToTheirBytes) {
  const auto memory = SharedMemory::Create(4096);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const v1::Tensor tensor = memory->MakeTensor(64, v1::BFLOAT16, {3, 2, 8});
  EXPECT_EQ(tensor.dtype(), v1::BFLOAT16);
  EXPECT_EQ(tensor.shape_size(), 3);
  EXPECT_EQ(tensor.shape(2), 8);
  EXPECT_EQ(tensor.shared_memory().region(), memory->name());
  EXPECT_EQ(tensor.shared_memory().offset(), 64);
  EXPECT_EQ(tensor.shared_memory().size(), 96);
}

}  // namespace
}  // namespace castor::client
