#include "server/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/shared_object.h"

namespace castor::server {
namespace {

constexpr char kTenant[] = "tenant";

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// A refusal of Open, such as "INVALID_FIELD key"; "none" if it succeeds.
std::string Refusal(const absl::Status& status) {
  if (status.ok()) return "none";
  return std::string(NameOf(ReasonOf(status))) + " " + FieldOf(status).value_or("");
}

std::string OpenRefusal(RegionInfo info) {
  return Refusal(SharedRegion::Open(std::move(info)).status());
}

// A region without a file, for code that never reads it.
std::shared_ptr<const SharedRegion> Hollow(std::string name) {
  return std::make_shared<const SharedRegion>(RegionInfo{std::move(name), "/none", 0, 1}, -1);
}

std::string ReadBack(const FileRange& range) {
  std::string bytes(static_cast<size_t>(range.size), '\0');
  EXPECT_EQ(pread(range.descriptor, bytes.data(), bytes.size(), range.offset), range.size);
  return bytes;
}

absl::Status Write(const FileRange& range, const std::string& text) {
  return WriteRange(range, std::as_bytes(std::span(text)), "output");
}

TEST(SharedRegionTest, OutlivesTheObjectsName) {
  std::shared_ptr<const SharedRegion> region;
  {
    const SharedObject object(10);
    object.Write(0, "beaver");
    region = *SharedRegion::Open({"r", object.key(), 0, 10});
  }
  EXPECT_EQ(ReadBack(*region->Range(0, 6, "")), "beaver");
}

TEST(SharedRegionTest, NamesAndKeysAreChecked) {
  const SharedObject object(100);
  const std::string& key = object.key();
  EXPECT_EQ(OpenRefusal({"r", key, 0, 100}), "none");
  EXPECT_EQ(OpenRefusal({std::string(256, 'n'), key, 0, 100}), "none");
  EXPECT_EQ(OpenRefusal({"", key, 0, 100}), "INVALID_FIELD name");
  EXPECT_EQ(OpenRefusal({std::string(257, 'n'), key, 0, 100}), "INVALID_FIELD name");
  for (const std::string& bad :
       {std::string(), std::string("/"), key.substr(1), key + "/x", std::string("/..").append(key),
        std::string("/."), std::string("/.."), std::string("/../etc/passwd"),
        key + std::string("\0x", 2), std::string("/").append(255, 'k'),
        std::string("/castor-no-such-object")}) {
    EXPECT_EQ(OpenRefusal({"r", bad, 0, 100}), "INVALID_FIELD key") << bad;
  }
}

TEST(SharedRegionTest, RangesOutsideOfTheObjectAreRefused) {
  const SharedObject object(100);
  const std::string& key = object.key();
  EXPECT_EQ(OpenRefusal({"r", key, -1, 1}), "INVALID_FIELD offset");
  EXPECT_EQ(OpenRefusal({"r", key, kMin, 1}), "INVALID_FIELD offset");
  for (const int64_t size : {int64_t{0}, int64_t{-1}, kMin, int64_t{81}, kMax}) {
    EXPECT_EQ(OpenRefusal({"r", key, 20, size}), "INVALID_FIELD size") << size;
  }
  for (const int64_t offset : {int64_t{100}, int64_t{101}, kMax}) {
    EXPECT_EQ(OpenRefusal({"r", key, offset, 1}), "INVALID_FIELD size") << offset;
    EXPECT_EQ(OpenRefusal({"r", key, offset, kMax}), "INVALID_FIELD size") << offset;
  }
}

TEST(SharedRegionTest, OnlyRegularObjectsOfOursAreOpened) {
  const SharedObject object(100);
  const std::string folder = "/dev/shm";
  const std::string made = object.key() + "-other";
  // A link could lead anywhere.
  std::filesystem::create_symlink(folder + object.key(), folder + made);
  EXPECT_EQ(OpenRefusal({"r", made, 0, 1}), "INVALID_FIELD key");
  std::filesystem::remove(folder + made);
  std::filesystem::create_directory(folder + made);
  EXPECT_EQ(OpenRefusal({"r", made, 0, 1}), "INVALID_FIELD key");
  std::filesystem::remove(folder + made);
  ASSERT_EQ(mkfifo((folder + made).c_str(), 0600), 0);
  EXPECT_EQ(OpenRefusal({"r", made, 0, 1}), "INVALID_FIELD key");
  std::filesystem::remove(folder + made);
}

TEST(SharedRegionTest, NoDescriptorLeftIsALimit) {
  const SharedObject object(100);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string refusal = OpenRefusal({"r", object.key(), 0, 1});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(refusal, "TOO_MANY_REGIONS ");
}

TEST(SharedMemoryTest, ARegionInUseOutlivesItsRegistration) {
  SharedMemory regions(1);
  const SharedObject object(10);
  ASSERT_TRUE(regions.Add(kTenant, *SharedRegion::Open({"r", object.key(), 0, 10})).ok());
  auto used = *regions.Find(kTenant, "r", "");
  const FileRange range = *used->Range(0, 6, "");
  ASSERT_TRUE(regions.Remove(kTenant, "r").ok());
  EXPECT_TRUE(Write(range, "beaver").ok());
  EXPECT_EQ(object.Read(0, 6), "beaver");
  used.reset();
  EXPECT_EQ(fcntl(range.descriptor, F_GETFD), -1) << "closed with the last user";
}

TEST(SharedMemoryTest, ThreadsMayRegisterFindAndForgetAtOnce) {
  SharedMemory regions(64);
  std::atomic<int> found = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string mine = std::to_string(t);
      for (int i = 0; i < 500; ++i) {
        EXPECT_TRUE(regions.Add(kTenant, Hollow(mine)).ok());
        for (const char* name : {"0", "1", "2", "3"}) found += regions.Find(kTenant, name, "").ok();
        EXPECT_GE(regions.List(kTenant).size(), 1u);
        EXPECT_TRUE(regions.Remove(kTenant, mine).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(found, 4 * 500);
  EXPECT_TRUE(regions.List(kTenant).empty());
}

}  // namespace
}  // namespace castor::server
