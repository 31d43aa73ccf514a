#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "server/auth/caller_file.h"
#include "server/auth/token.h"
#include "tests/support/temporary_folder.h"

namespace castor::server {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

class TokenCommandTest : public ::testing::Test {
 protected:
  static int Run(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "token");
    return RunTokenCommand(static_cast<int>(arguments.size()), arguments.data());
  }
  int Add(const std::string& name, const std::string& token_file) {
    return Run({name.c_str(), "--token-file", token_file.c_str(), "--add-to", file_.c_str()});
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Whose token is in the file at `path`; empty: nobody's.
  std::string OwnerOf(const std::string& path) const {
    std::string token = Read(path);
    if (!token.empty()) token.pop_back();
    const auto callers = ParseCallers(Read(file_));
    EXPECT_TRUE(callers.ok()) << callers.status();
    const Credential* const found = callers.ok() ? callers->FindToken(DigestOf(token)) : nullptr;
    return found == nullptr ? "" : found->name;
  }

  const TemporaryFolder folder_;
  const std::string file_ = folder_ / "callers.toml";
};

TEST_F(TokenCommandTest, AddsCallersToAFileThatIsWholeAtAllTimes) {
  EXPECT_EQ(Add("search", folder_ / "1"), 0);
  EXPECT_EQ(OwnerOf(folder_ / "1"), "search");
  EXPECT_EQ(chmod(file_.c_str(), 0640), 0);
  std::filesystem::create_symlink("callers.toml", folder_ / "link");
  EXPECT_EQ(Run({"batch", "--token-file", (folder_ / "2").c_str(), "--add-to",
                 (folder_ / "link").c_str(), "--days", "30", "--allow", "*,metrics"}),
            0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_EQ(OwnerOf(folder_ / "1"), "search");
  EXPECT_EQ(OwnerOf(folder_ / "2"), "batch");
  EXPECT_THAT(Read(file_), HasSubstr("allow = [\"*\", \"metrics\"]\nexpires = 2"));
  struct stat about {};
  ASSERT_EQ(stat(file_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0640U);
}

TEST_F(TokenCommandTest, AFileThatIsWrongStaysAsItIs) {
  std::ofstream(file_) << "# no end\n";
  CaptureStderr();
  EXPECT_EQ(Add("search", folder_ / "1"), 1);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr(file_ + ": its last line is not [end]"));
  EXPECT_EQ(Read(file_), "# no end\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "1"));  // a token that nobody knows
  std::filesystem::remove(file_);
  std::ofstream(file_ + ".new") << "somebody else writes";
  CaptureStderr();
  EXPECT_EQ(Add("search", folder_ / "1"), 1);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("cannot create " + file_ + ".new: File exists"));
  EXPECT_EQ(Read(file_ + ".new"), "somebody else writes");
}

TEST_F(TokenCommandTest, PrintsAnEntryThatSaysItsRights) {
  CaptureStdout();
  CaptureStderr();
  EXPECT_EQ(Run({"search"}), 0);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("token for search, shown this once: castor_"));
  const std::string entry = GetCapturedStdout();
  EXPECT_THAT(entry, HasSubstr("allow = [\"*\"]\nexpires = \"never\"\n"));
  EXPECT_TRUE(ParseCallers(entry + "[end]\n").ok());
  CaptureStderr();
  EXPECT_EQ(Run({"search", "--allow", "castor.v1.NoService"}), 2);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("castor.v1.NoService"));
}

}  // namespace
}  // namespace castor::server
