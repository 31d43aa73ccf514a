#include "server/auth/live_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace castor::server {
namespace {

using ::testing::HasSubstr;
using Files = LiveFiles<std::string>;

// The texts, one after the other; "bad" among them is refused.
absl::StatusOr<std::string> Join(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) {
    if (text == "bad") return absl::InvalidArgumentError("bad text");
    joined += text;
  }
  return joined;
}

class LiveFilesTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  std::unique_ptr<Files> Open(const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(name.empty() ? "" : folder_ / name);
    auto files = Files::Open(paths, Join);
    EXPECT_TRUE(files.ok()) << files.status();
    return *std::move(files);
  }

  const TemporaryFolder folder_;
};

TEST_F(LiveFilesTest, WhatIsWrongOrMissingLeavesWhatWas) {
  Write("a", "1");
  const auto files = Open({"a"});
  Write("a", "bad");
  EXPECT_EQ(files->Refresh().status().message(), "bad text");
  EXPECT_EQ(files->Refresh().status().message(), "bad text") << "as long as it stands";
  std::filesystem::remove(folder_ / "a");
  EXPECT_THAT(std::string(files->Refresh().status().message()), HasSubstr("no such file"));
  EXPECT_EQ(*files->current(), "1");
  Write("a", "1");
  EXPECT_EQ(*files->Refresh(), false);
  Write("a", "2");
  EXPECT_EQ(*files->Refresh(), true);
}

// Kubernetes: each file is a link into ..data, which is a link that is swapped.
TEST_F(LiveFilesTest, SeesThroughLinksThatAreSwapped) {
  for (const char* version : {"v1", "v2"}) {
    std::filesystem::create_directory(folder_ / version);
    Write(std::string(version) + "/a", version);
    Write(std::string(version) + "/b", version);
  }
  std::filesystem::create_directory_symlink("v1", folder_ / "..data");
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_symlink(std::string("..data/") + name, folder_ / name);
  }
  const auto files = Open({"a", "b"});
  EXPECT_EQ(*files->current(), "v1v1");
  std::filesystem::create_directory_symlink("v2", folder_ / "..data_tmp");
  std::filesystem::rename(folder_ / "..data_tmp", folder_ / "..data");
  EXPECT_EQ(*files->Refresh(), true);
  EXPECT_EQ(*files->current(), "v2v2");
}

}  // namespace
}  // namespace castor::server
