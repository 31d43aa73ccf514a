// What tests of the server's options share: flags in, options or one line of an error out.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/options/options.h"

namespace castor::server {

// Sets environment variables for one test and restores them afterwards; owns a scratch folder.
class OptionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "castor-options-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    std::filesystem::remove_all(folder_);
  }

  void SetEnvironment(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }

  std::string WriteFile(const std::string& text) {
    const std::string path = folder_ + "/castor.toml";
    std::ofstream(path) << text;
    return path;
  }

  std::string MakeFolder(const std::string& name) {
    std::filesystem::create_directories(folder_ + "/" + name);
    return folder_ + "/" + name;
  }

  static std::variant<ServerOptions, int> Parse(std::vector<std::string> flags) {
    std::vector<const char*> argv = {"castor-server"};
    for (const std::string& flag : flags) argv.push_back(flag.c_str());
    return ParseOptions(static_cast<int>(argv.size()), argv.data());
  }

  static ServerOptions ParseOrDie(std::vector<std::string> flags) {
    auto parsed = Parse(std::move(flags));
    if (std::holds_alternative<int>(parsed)) {
      ADD_FAILURE() << "refused with exit code " << std::get<int>(parsed);
      return {};
    }
    return std::get<ServerOptions>(std::move(parsed));
  }

  // The line printed for flags that must be refused.
  static std::string ErrorOf(std::vector<std::string> flags) {
    ::testing::internal::CaptureStderr();
    const auto parsed = Parse(std::move(flags));
    std::string line = ::testing::internal::GetCapturedStderr();
    const int* exit_code = std::get_if<int>(&parsed);
    EXPECT_TRUE(exit_code != nullptr && *exit_code == 2);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    return line;
  }

  std::string folder_;
  std::vector<std::string> set_;
};

}  // namespace castor::server
