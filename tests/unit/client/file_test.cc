#include "client/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace castor::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(File, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const std::string path = folder / "f";
  const std::string large(300'000, 'y');
  ASSERT_TRUE(WriteFile(path, {"begin ", large}).ok());
  ASSERT_TRUE(WriteFile(path, {"begin ", large, ""}).ok()) << "overwritten, not appended to";
  auto file = InputFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::string bytes = "> ";
  ASSERT_TRUE(file->Append(6, &bytes).ok());
  EXPECT_EQ(bytes, "> begin ");
  // Far more than the file and the memory hold.
  ASSERT_TRUE(file->Append(size_t{1} << 62, &bytes).ok());
  EXPECT_EQ(bytes, "> begin " + large);
}

TEST(File, ErrorsNameFileAndCause) {
  const TemporaryFolder folder;
  EXPECT_THAT(MessageOf(InputFile::Open(folder / "none").status()),
              AllOf(HasSubstr(folder / "none"), HasSubstr("No such file")));
  auto directory = InputFile::Open(folder.path());
  ASSERT_TRUE(directory.ok());
  std::string bytes;
  EXPECT_THAT(MessageOf(directory->Append(1, &bytes)),
              AllOf(HasSubstr(folder.path()), HasSubstr("Is a directory")));
  EXPECT_THAT(MessageOf(WriteFile(folder.path(), {"x"})),
              AllOf(HasSubstr(folder.path()), HasSubstr("Is a directory")));
  EXPECT_THAT(MessageOf(WriteFile("/dev/full", {"x"})),
              AllOf(HasSubstr("/dev/full"), HasSubstr("No space left")));
}

TEST(File, APipeIsReadToItsEnd) {
  const TemporaryFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const std::string large(300'000, 'z');  // more than a pipe holds
  std::thread writer([&] { EXPECT_TRUE(WriteFile(path, {large, "end"}).ok()); });
  auto file = InputFile::Open(path);
  std::string bytes;
  EXPECT_TRUE(file.ok() && file->Append(1 << 20, &bytes).ok());
  writer.join();
  EXPECT_EQ(bytes, large + "end");
}

}  // namespace
}  // namespace castor::client
