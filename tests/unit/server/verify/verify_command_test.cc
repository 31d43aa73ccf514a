#include "server/verify/verify_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "server/auth/token.h"
#include "tests/support/temporary_folder.h"

namespace castor::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class VerifyCommandTest : public ::testing::Test {
 protected:
  VerifyCommandTest() {
    std::filesystem::create_directory(folder_ / "model");
    std::ofstream(folder_ / "model/a") << "abc";
    std::ofstream(folder_ / "right") << ToHex(DigestOf("abc")) << "  a\n";
    std::ofstream(folder_ / "wrong") << ToHex(DigestOf("abd")) << "  a\n";
    std::ofstream(folder_ / "none") << "a\n";
  }
  // The exit code; what it wrote is in out_ and err_.
  int Run(const std::vector<std::string>& arguments) {
    std::vector<const char*> argv = {"verify"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = RunVerifyCommand(static_cast<int>(argv.size()), argv.data());
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  TemporaryFolder folder_;
  std::string out_, err_;
};

TEST_F(VerifyCommandTest, TheExitCodeTells) {
  EXPECT_EQ(Run({folder_ / "model", "--manifest", folder_ / "right"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("as in the manifest, files: 1"));
  EXPECT_EQ(Run({folder_ / "model", "--manifest", folder_ / "wrong"}), 1);
  EXPECT_THAT(err_, HasSubstr("a: is not what the manifest says"));
  EXPECT_EQ(Run({folder_ / "model", "--manifest", folder_ / "none"}), 2);
  EXPECT_THAT(err_, HasSubstr("none: line 1: "));
  EXPECT_EQ(Run({folder_ / "model", "--manifest", folder_ / "missing"}), 2);
  EXPECT_EQ(Run({folder_ / "model"}), 2);
  EXPECT_EQ(Run({"--manifest", folder_ / "right"}), 2);
  EXPECT_EQ(Run({"--help"}), 0);
}

TEST_F(VerifyCommandTest, ANameCannotForgeALine) {
  std::ofstream(folder_ / "model/b\nall as in the manifest\x1b[2J") << "x";
  EXPECT_EQ(Run({folder_ / "model", "--manifest", folder_ / "right"}), 1);
  EXPECT_THAT(err_, HasSubstr("is not in the manifest"));
  EXPECT_THAT(err_, Not(HasSubstr("\nall as")));
  EXPECT_THAT(err_, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace castor::server
