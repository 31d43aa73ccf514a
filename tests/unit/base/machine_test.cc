#include "engine/base/machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string>

#include "tests/support/sanitizer.h"
#include "tests/support/temporary_folder.h"

namespace castor {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// A fake machine: files in a folder.
class CgroupTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  void Cgroup(const std::string& text) { Write("/proc/self/cgroup", text); }

  // Mounts, each "ROOT POINT TYPE OPTIONS".
  void Mounts(std::initializer_list<std::array<std::string, 4>> mounts) {
    std::string text = "22 27 0:21 / /proc rw,relatime - proc proc rw\n";
    for (const auto& [root, point, type, options] : mounts) {
      text += "35 31 0:32 " + root + " " + point + " rw,nosuid shared:9 - " + type + " cgroup " +
              options + "\n";
    }
    Write("/proc/self/mountinfo", text);
  }

  // Only version 2, mounted whole, with the process in `path`.
  void VersionTwo(const std::string& path) {
    Cgroup("0::" + path + "\n");
    Mounts({{"/", "/sys/fs/cgroup", "cgroup2", "rw,nsdelegate"}});
  }

  CgroupLimits Read() { return ReadCgroupLimits(root_.path()); }

  TemporaryFolder root_;
};

TEST_F(CgroupTest, NothingReadableLimitsNothing) {
  EXPECT_TRUE(std::isinf(Read().processors));
  EXPECT_EQ(Read().memory_bytes, kNoLimit);
}

TEST_F(CgroupTest, ReadsVersionTwo) {
  VersionTwo("/pod");
  Write("/sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  Write("/sys/fs/cgroup/pod/memory.max", "536870912\n");
  EXPECT_DOUBLE_EQ(Read().processors, 2.5);
  EXPECT_EQ(Read().memory_bytes, 512 * kMiB);
}

TEST_F(CgroupTest, MaxLimitsNothing) {
  VersionTwo("/pod");
  Write("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/pod/memory.max", "max\n");
  EXPECT_TRUE(std::isinf(Read().processors));
  EXPECT_EQ(Read().memory_bytes, kNoLimit);
}

TEST_F(CgroupTest, TheTightestLevelCounts) {
  VersionTwo("/slice/pod/container");
  Write("/sys/fs/cgroup/slice/cpu.max", "800000 100000\n");
  Write("/sys/fs/cgroup/slice/memory.max", "104857600\n");
  Write("/sys/fs/cgroup/slice/pod/cpu.max", "150000 50000\n");
  Write("/sys/fs/cgroup/slice/pod/memory.max", "209715200\n");
  Write("/sys/fs/cgroup/slice/pod/container/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/slice/pod/container/memory.max", "max\n");
  EXPECT_DOUBLE_EQ(Read().processors, 3);
  EXPECT_EQ(Read().memory_bytes, 100 * kMiB);
}

TEST_F(CgroupTest, ReadsTheMountItselfInANamespace) {
  VersionTwo("/");
  Write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  Write("/sys/fs/cgroup/memory.max", "1073741824\n");
  EXPECT_DOUBLE_EQ(Read().processors, 4);
  EXPECT_EQ(Read().memory_bytes, 1024 * kMiB);
}

TEST_F(CgroupTest, ReadsVersionOneByController) {
  Cgroup("4:memory:/pod\n3:cpu,cpuacct:/pod\n2:name=systemd:/pod\n");
  Mounts({{"/", "/sys/fs/cgroup/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct"},
          {"/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"},
          {"/", "/sys/fs/cgroup/systemd", "cgroup", "rw,name=systemd"}});
  Write("/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "350000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "268435456\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_DOUBLE_EQ(Read().processors, 3.5);
  EXPECT_EQ(Read().memory_bytes, 256 * kMiB);
}

// Docker on version 1 without a namespace: the mount shows only the container's own folder.
TEST_F(CgroupTest, FollowsTheRootOfAMount) {
  Cgroup("3:cpu:/docker/a:b c\n1:memory:/docker/a:b c/inner\n");
  Mounts({{"/docker/a:b\\040c", "/cg/c\\040pu", "cgroup", "rw,cpu"},
          {"/docker/a:b\\040c", "/cg/memory", "cgroup", "rw,memory"},
          {"/docker/a", "/cg/neighbour", "cgroup", "rw,memory"}});
  Write("/cg/c pu/cpu.cfs_quota_us", "200000\n");
  Write("/cg/c pu/cpu.cfs_period_us", "100000\n");
  Write("/cg/memory/inner/memory.limit_in_bytes", "134217728\n");
  Write("/cg/neighbour/memory.limit_in_bytes", "1048576\n");
  EXPECT_DOUBLE_EQ(Read().processors, 2);
  EXPECT_EQ(Read().memory_bytes, 128 * kMiB);
}

TEST_F(CgroupTest, ReadsBothVersionsSideBySide) {
  Cgroup("5:memory:/pod\n0::/pod\n");
  Mounts({{"/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"},
          {"/", "/sys/fs/cgroup/unified", "cgroup2", "rw"}});
  Write("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "268435456\n");
  Write("/sys/fs/cgroup/unified/pod/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(Read().processors, 0.5);
  EXPECT_EQ(Read().memory_bytes, 256 * kMiB);
}

// A mount made outside the namespace has a root above ours. Its limits apply to us too, but not
// those of a folder in it that happens to have our name.
TEST_F(CgroupTest, ReadsAMountFromOutsideOfTheNamespace) {
  Cgroup("0::/pod\n");
  Mounts({{"/../..", "/sys/fs/cgroup", "cgroup2", "rw"}});
  Write("/sys/fs/cgroup/memory.max", "268435456\n");
  Write("/sys/fs/cgroup/pod/memory.max", "1048576\n");
  EXPECT_EQ(Read().memory_bytes, 256 * kMiB);
}

TEST_F(CgroupTest, AProcessOutsideOfItsNamespaceHasNoKnownLimit) {
  VersionTwo("/../neighbour");
  Write("/sys/fs/cgroup/memory.max", "1048576\n");
  EXPECT_EQ(Read().memory_bytes, kNoLimit);
}

TEST_F(CgroupTest, NonsenseLimitsNothing) {
  Cgroup("\n:\n0:\n0::\n0::pod\n0::/pod\n");
  Write("/proc/self/mountinfo",
        "\n- cgroup2\n1 2 3 / - - cgroup2\n35 31 0:32 / /cg rw - cgroup2 c rw\n");
  Write("/cg/pod/cpu.max", "0 0\n");
  Write("/cg/cpu.max", "-5 100000 7\n");
  Write("/cg/pod/memory.max", "99999999999999999999\n");
  Write("/cg/memory.max", "12 apples 3GB");
  EXPECT_TRUE(std::isinf(Read().processors));
  EXPECT_EQ(Read().memory_bytes, 12);
  Write("/cg/memory.max", "");
  EXPECT_EQ(Read().memory_bytes, kNoLimit);
}

// These functions read a value once and keep it, so each test runs in its own process.
class MachineDeathTest : public testing::Test {
 protected:
  MachineDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void ExitWithProcessorsOfOne() {
  cpu_set_t all;
  cpu_set_t one;
  sched_getaffinity(0, sizeof(all), &all);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  }
  sched_setaffinity(0, sizeof(one), &one);
  std::_Exit(AvailableProcessors());
}

TEST_F(MachineDeathTest, CountsTheProcessorsOfTheAffinity) {
  EXPECT_EXIT(ExitWithProcessorsOfOne(), testing::ExitedWithCode(1), "");
}

[[noreturn]] void ExitWithMiBUnder(decltype(RLIMIT_AS) resource) {
  const rlimit limit{rlim_t{250 * kMiB}, RLIM_INFINITY};
  setrlimit(resource, &limit);
  std::_Exit(static_cast<int>(MemoryLimitBytes() / kMiB));
}

TEST_F(MachineDeathTest, ResourceLimitsBoundMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory exceeds such limits";
  EXPECT_EXIT(ExitWithMiBUnder(RLIMIT_AS), testing::ExitedWithCode(250), "");
  EXPECT_EXIT(ExitWithMiBUnder(RLIMIT_DATA), testing::ExitedWithCode(250), "");
}

TEST(MachineTest, SharesOfTheMemory) {
  EXPECT_GE(AvailableProcessors(), 1);
  const int64_t limit = MemoryLimitBytes();
  EXPECT_GE(limit, kMiB);
  EXPECT_EQ(MemoryShare(kMiB, 1), kMiB);
  EXPECT_EQ(MemoryShare(kNoLimit, 4), std::max(kMiB, limit / 4 / kMiB * kMiB));
  EXPECT_EQ(MemoryShare(kNoLimit, limit), kMiB);
}

}  // namespace
}  // namespace castor
