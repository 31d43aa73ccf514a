#include "engine/base/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class RegularFileTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  // The error of reading `path`, which must begin with the path.
  std::string ErrorOf(const std::string& path, absl::StatusCode code, int64_t max_bytes = 100) {
    const absl::Status status = ReadRegularFile(path, max_bytes).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), StartsWith(path + ": "));
    return std::string(status.message());
  }
  std::string Refused(const std::string& path) {
    return ErrorOf(path, absl::StatusCode::kInvalidArgument);
  }

  const TemporaryFolder folder_;
};

TEST_F(RegularFileTest, ReadsFilesAndLinksToThem) {
  const std::string bytes("a\0b\n", 4);
  const std::string file = Write("file", bytes), empty = Write("empty", "");
  std::filesystem::create_symlink("file", folder_ / "link");
  std::filesystem::create_symlink("link", folder_ / "second");
  EXPECT_EQ(*ReadRegularFile(file, 4), bytes);
  EXPECT_EQ(*ReadRegularFile(folder_ / "second", 4), bytes);
  EXPECT_EQ(*ReadRegularFile(empty, 0), "");
}

TEST_F(RegularFileTest, RefusesWhatIsNoFile) {
  const std::string pipe = folder_ / "pipe", socket_path = folder_ / "socket";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);  // it has no writer, so opening it would block
  EXPECT_THAT(Refused(pipe), HasSubstr("is a pipe"));
  std::filesystem::create_symlink("pipe", folder_ / "link");
  EXPECT_THAT(Refused(folder_ / "link"), HasSubstr("is a pipe"));
  EXPECT_THAT(Refused(folder_.path()), HasSubstr("is a directory"));
  EXPECT_THAT(Refused("/dev/zero"), HasSubstr("is a device"));

  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket_path.size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, socket_path.c_str());
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(Refused(socket_path), HasSubstr("is a socket"));
  close(listener);
}

TEST_F(RegularFileTest, TellsMissingFilesFromLinksToNothing) {
  const auto missing = [&](const std::string& path) {
    return ErrorOf(path, absl::StatusCode::kNotFound);
  };
  EXPECT_THAT(missing(folder_ / "none"), HasSubstr("no such file"));
  EXPECT_THAT(missing(Write("file", "") + "/none"), HasSubstr("no such file"));
  std::filesystem::create_symlink("none", folder_ / "link");
  EXPECT_THAT(missing(folder_ / "link"), HasSubstr("a link to nothing"));
  EXPECT_FALSE(NameExists(folder_ / "none"));
  EXPECT_TRUE(NameExists(folder_ / "link"));
  std::filesystem::create_symlink("loop", folder_ / "loop");
  EXPECT_THAT(Refused(folder_ / "loop"), HasSubstr("cannot be opened"));
}

TEST_F(RegularFileTest, ReadsNothingOfAFileThatIsTooLarge) {
  const std::string path = Write("file", "");
  std::filesystem::resize_file(path, uint64_t{10} << 30);  // sparse
  EXPECT_THAT(Refused(path), AllOf(HasSubstr("10737418240 bytes"), HasSubstr("at most 100")));
}

}  // namespace
}  // namespace castor
