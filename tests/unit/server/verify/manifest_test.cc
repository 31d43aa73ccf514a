#include "server/verify/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace castor::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

// FIPS 180-2's example.
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

std::string Line(const std::string& path, const std::string& content) {
  return ToHex(DigestOf(content)) + "  " + path + "\n";
}

class ManifestTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) {
    fs::create_directories(fs::path(model_ / name).parent_path());
    std::ofstream(model_ / name, std::ios::binary) << content;
  }
  std::vector<std::string> Faults(const std::string& manifest) {
    const auto parsed = ParseManifest(manifest);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return FaultsOf(model_.path(), *parsed);
  }

  TemporaryFolder model_;
};

TEST_F(ManifestTest, WhatSha256sumPrintsIsRead) {
  const auto manifest = ParseManifest(std::string("# the model\n") + kAbc +
                                      "  ./config.json\r\n\n" + kAbc + " *1_Pooling/a b.json");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_EQ(manifest->size(), 2U);
  EXPECT_EQ(manifest->at("config.json"), DigestOf("abc"));
  EXPECT_EQ(manifest->at("1_Pooling/a b.json"), DigestOf("abc"));
}

TEST_F(ManifestTest, OtherTextIsRefusedWithItsLine) {
  const std::string good = std::string(kAbc) + "  a\n";
  for (const std::string& bad :
       {std::string(kAbc), std::string(kAbc) + "  ", std::string(kAbc) + " a",
        std::string(kAbc) + "a  b", "\\" + std::string(kAbc) + "  a\\nb",
        std::string(kAbc).substr(1) + "  b", "x" + std::string(kAbc).substr(1) + "  b",
        std::string("config.json")}) {
    const auto manifest = ParseManifest(good + bad + "\n");
    EXPECT_FALSE(manifest.ok()) << bad;
    EXPECT_THAT(std::string(manifest.status().message()), HasSubstr("line 2: ")) << bad;
  }
  EXPECT_FALSE(ParseManifest("").ok());
  EXPECT_FALSE(ParseManifest("# nothing\n").ok());
}

TEST_F(ManifestTest, PathsStayInsideTheModel) {
  for (const char* path : {"/etc/passwd", "../a", "b/../../a", "..", ".", "b/", "b/.."}) {
    EXPECT_FALSE(ParseManifest(std::string(kAbc) + "  " + path).ok()) << path;
  }
  EXPECT_TRUE(ParseManifest(std::string(kAbc) + "  b/../a").ok());
}

TEST_F(ManifestTest, AFileIsNamedOnce) {
  const auto manifest = ParseManifest(Line("a", "1") + Line("./a", "2"));
  EXPECT_THAT(std::string(manifest.status().message()), HasSubstr("second time"));
}

TEST_F(ManifestTest, AModelAsItShouldBeHasNoFaults) {
  Write("config.json", "{}");
  Write("1_Pooling/config.json", "");
  Write("weights", std::string((1 << 20) + 17, 'w'));  // more than is read at once
  fs::create_directory(model_ / "empty");
  EXPECT_THAT(Faults(Line("config.json", "{}") + Line("1_Pooling/config.json", "") +
                     Line("weights", std::string((1 << 20) + 17, 'w'))),
              IsEmpty());
}

TEST_F(ManifestTest, EachFaultIsTold) {
  Write("changed", "abd");
  Write("more/added", "x");
  Write("right", "abc");
  EXPECT_THAT(
      Faults(Line("changed", "abc") + Line("gone", "x") + Line("right", "abc")),
      ElementsAre("changed: is not what the manifest says: SHA-256 " + ToHex(DigestOf("abd")),
                  "gone: is missing", "more/added: is not in the manifest"));
}

TEST_F(ManifestTest, AFileThatWasCutOffDiffers) {
  Write("weights", "ab");
  EXPECT_THAT(Faults(Line("weights", "abc")), ElementsAre(HasSubstr("weights: is not what")));
}

// A cache of Hugging Face's has links to its files; a link to a folder would hide files.
TEST_F(ManifestTest, LinksCountAsTheFilesTheyLeadTo) {
  TemporaryFolder elsewhere;
  std::ofstream(elsewhere / "blob") << "abc";
  fs::create_symlink(elsewhere / "blob", model_ / "file");
  fs::create_symlink(elsewhere / "none", model_ / "dangling");
  fs::create_directory_symlink(elsewhere.path(), model_ / "folder");
  EXPECT_THAT(Faults(Line("file", "abc") + Line("dangling", "abc")),
              ElementsAre("dangling: is no regular file", "folder: is a link to a folder"));
}

TEST_F(ManifestTest, APipeIsAFaultAndNotWaitedFor) {
  ASSERT_EQ(mkfifo((model_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(Faults(Line("pipe", "")), ElementsAre("pipe: is no regular file"));
}

TEST_F(ManifestTest, AModelMayBeOneFile) {
  Write("layers.safetensors", "abc");
  const auto manifest = ParseManifest(Line("layers.safetensors", "abc"));
  EXPECT_THAT(FaultsOf(model_ / "layers.safetensors", *manifest), IsEmpty());
  Write("layers.safetensors", "abd");
  EXPECT_THAT(FaultsOf(model_ / "layers.safetensors", *manifest),
              ElementsAre(HasSubstr("is not what the manifest says")));
}

TEST_F(ManifestTest, AModelThatIsNotThereIsAFault) {
  const auto manifest = ParseManifest(Line("a", "abc"));
  EXPECT_THAT(FaultsOf(model_ / "none", *manifest), ElementsAre(HasSubstr("there is nothing")));
}

}  // namespace
}  // namespace castor::server
