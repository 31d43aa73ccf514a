#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "engine/base/error.h"
#include "engine/base/regular_file.h"
#include "engine/tensor_reader.h"
#include "tests/support/shared_object.h"
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

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

TensorInput InFile(const SharedObject& object, int64_t offset, int64_t size) {
  TensorInput input;
  input.file = FileRange{.descriptor = object.descriptor(), .offset = offset, .size = size};
  return input;
}

std::string Next(TensorReader& reader, size_t size) {
  std::string bytes(size, '\0');
  const absl::Status status = reader.Read(size, reinterpret_cast<std::byte*>(bytes.data()));
  return status.ok() ? bytes : std::string(status.message());
}

TEST(TensorReaderTest, PiecesAreOneAfterAnother) {
  const std::string text = "0123456789";
  const auto bytes = std::as_bytes(std::span(text));
  TensorInput input;
  input.pieces = {bytes.first(0), bytes.first(3), {}, bytes.subspan(3, 4), bytes.subspan(7)};
  EXPECT_EQ(input.size_bytes(), 10);
  EXPECT_EQ(DataField(input, "query"), "query.raw");
  TensorReader reader(input, "query");
  EXPECT_EQ(Next(reader, 2), "01");
  EXPECT_EQ(Next(reader, 3), "234");
  reader.Skip(3);
  EXPECT_EQ(Next(reader, 2), "89");
  EXPECT_EQ(Next(reader, 0), "");
}

TEST(TensorReaderTest, PiecesThatOverflowHaveNoSize) {
  TensorInput input;
  input.pieces.assign(3, {static_cast<const std::byte*>(nullptr), size_t{kLargest}});
  EXPECT_EQ(input.size_bytes(), -1);
}

TEST(TensorReaderTest, AFileIsReadFromItsRange) {
  const SharedObject object(20);
  object.Write(5, "0123456789");
  const TensorInput input = InFile(object, 5, 10);
  EXPECT_EQ(input.size_bytes(), 10);
  EXPECT_EQ(DataField(input, "cast.gate"), "cast.gate.shared_memory");
  TensorReader reader(input, "cast.gate");
  EXPECT_EQ(Next(reader, 4), "0123");
  reader.Skip(3);
  EXPECT_EQ(Next(reader, 3), "789");
}

TEST(TensorReaderTest, AFileThatWasCutIsAnErrorAtItsField) {
  const SharedObject object(1 << 20);
  const TensorInput input = InFile(object, 100, 8000);
  for (const int64_t left : {8099, 4096, 100, 99, 0}) {
    object.Cut(left);
    std::string bytes(8000, '\0');
    const absl::Status status =
        TensorReader(input, "key").Read(8000, reinterpret_cast<std::byte*>(bytes.data()));
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidField) << left;
    EXPECT_EQ(FieldOf(status), "key.shared_memory") << left;
  }
}

TEST(TensorReaderTest, RangesThatNoFileHasAreErrors) {
  const SharedObject object(100);
  for (const auto& [offset, size] :
       {std::pair{int64_t{101}, int64_t{8}}, std::pair{kLargest, int64_t{8}},
        std::pair{kLargest - 4, int64_t{8}}, std::pair{int64_t{-8}, int64_t{8}}}) {
    const TensorInput input = InFile(object, offset, size);
    TensorReader reader(input, "query");
    std::byte bytes[8];
    EXPECT_EQ(FieldOf(reader.Read(8, bytes)), "query.shared_memory") << offset;
  }
  TensorInput closed;
  closed.file = FileRange{.descriptor = -1, .offset = 0, .size = 8};
  std::byte bytes[8];
  EXPECT_EQ(ReasonOf(TensorReader(closed, "query").Read(8, bytes)), Reason::kInvalidField);
}

}  // namespace
}  // namespace castor
