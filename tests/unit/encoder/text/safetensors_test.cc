// Hostile files that a safetensors reader must refuse, and models in several shards.
#include "engine/hf/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/encoder/model_files.h"

namespace castor::hf {
namespace {

using encoder::SafetensorsBytes;
using encoder::WriteFile;
using testing::HasSubstr;

absl::Status Open(const std::string& bytes) {
  const TemporaryFolder folder;
  WriteFile(folder / "x.safetensors", bytes);
  return Safetensors::OpenFile(folder / "x.safetensors").status();
}

std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(SafetensorsTest, ReadsTensors) {
  const TemporaryFolder folder;
  const std::string header = R"( {"__metadata__":{"format":"pt"},"a":)" +
                             Entry("F32", "[2,1]", "[0,8]") + R"(,"scalar":)" +
                             Entry("I64", "[]", "[8,16]") + R"(,"none":)" +
                             Entry("BF16", "[0,3]", "[16,16]") + "}  ";
  WriteFile(folder / "x.safetensors", SafetensorsBytes(header, "abcdefghABCDEFGH"));
  const auto file = Safetensors::OpenFile(folder / "x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().size(), 3u);
  const StoredTensor* a = (*file)->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, "F32");
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(a->data.data()), a->data.size()), "abcdefgh");
  EXPECT_EQ((*file)->Find("scalar")->data.size(), 8u);
  EXPECT_EQ((*file)->Find("none")->data.size(), 0u);
  EXPECT_EQ((*file)->Find("b"), nullptr);
}

TEST(SafetensorsTest, RefusesBadLengths) {
  EXPECT_FALSE(Open("").ok());
  EXPECT_FALSE(Open("1234567").ok());
  EXPECT_FALSE(Open(std::string(8, '\xff')).ok());                   // header beyond any limit
  EXPECT_FALSE(Open(std::string("\x10\0\0\0\0\0\0\0{}", 10)).ok());  // header beyond the file
  EXPECT_FALSE(Open(SafetensorsBytes("{}", "trailing")).ok());
  const std::string one = R"({"a":)" + Entry("F32", "[2]", "[0,8]") + "}";
  EXPECT_TRUE(Open(SafetensorsBytes(one, "12345678")).ok());
  EXPECT_FALSE(Open(SafetensorsBytes(one, "1234567")).ok());
  EXPECT_FALSE(Open(SafetensorsBytes(one, "123456789")).ok());
}

// A download that broke off is told from a file that was never weights.
TEST(SafetensorsTest, SaysThatAFileIsShorterOrLongerThanItsHeaderSays) {
  const auto said = [](const std::string& bytes) { return std::string(Open(bytes).message()); };
  const std::string whole =
      SafetensorsBytes(R"({"a":)" + Entry("F32", "[2]", "[0,8]") + "}", "12345678");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(said(whole.substr(0, size)),
                HasSubstr("x.safetensors: is shorter than its header says"))
        << size;
  }
  EXPECT_THAT(said(whole + "9"), HasSubstr("is longer than its header says"));
  EXPECT_THAT(said("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(said("<!DOCTYPE html><html>"), HasSubstr("header too large"));
}

TEST(SafetensorsTest, RefusesBadHeaders) {
  const auto header = [](const std::string& text) { return Open(SafetensorsBytes(text, "")); };
  EXPECT_TRUE(header("{}").ok());
  EXPECT_FALSE(header("").ok());
  EXPECT_FALSE(header("[]").ok());
  EXPECT_FALSE(header("{").ok());
  EXPECT_FALSE(header("{}x").ok());
  EXPECT_FALSE(header("{\"a\xff\":1}").ok());
  EXPECT_FALSE(header(R"({"a":1})").ok());
  EXPECT_FALSE(header(R"({"__metadata__":{"x":1}})").ok());
  EXPECT_FALSE(header(R"({"a":)" + Entry("F33", "[0]", "[0,0]") + "}").ok());
  EXPECT_FALSE(header(R"({"a":)" + Entry("F32", "[-1]", "[0,0]") + "}").ok());
  EXPECT_FALSE(header(R"({"a":)" + Entry("F32", "[0.0]", "[0,0]") + "}").ok());
  EXPECT_FALSE(header(R"({"a":)" + Entry("F32", "[0]", "[0]") + "}").ok());
  EXPECT_FALSE(header(std::string(100000, '[')).ok());
}

TEST(SafetensorsTest, RefusesHolesOverlapsAndWrongSizes) {
  const auto two = [](const std::string& a, const std::string& b) {
    return Open(SafetensorsBytes(
        R"({"a":)" + Entry("U8", "[4]", a) + R"(,"b":)" + Entry("U8", "[4]", b) + "}", "12345678"));
  };
  EXPECT_TRUE(two("[0,4]", "[4,8]").ok());
  EXPECT_FALSE(two("[1,5]", "[4,8]").ok());
  EXPECT_FALSE(two("[0,4]", "[5,9]").ok());
  EXPECT_FALSE(two("[0,4]", "[0,4]").ok());
  EXPECT_FALSE(two("[0,4]", "[8,4]").ok());
  EXPECT_FALSE(two("[0,3]", "[3,8]").ok());
}

TEST(SafetensorsTest, RefusesShapesThatWrap) {
  const auto one = [](const std::string& dtype, const std::string& shape) {
    return Open(SafetensorsBytes(R"({"a":)" + Entry(dtype, shape, "[0,0]") + "}", ""));
  };
  EXPECT_FALSE(one("U8", "[4294967296,4294967296]").ok());
  EXPECT_FALSE(one("F32", "[4611686018427387904]").ok());
  EXPECT_FALSE(one("F64", "[2305843009213693952]").ok());
}

// Each size is in range, but their sum and the header's size overflow.
TEST(SafetensorsTest, RefusesOffsetsThatWrap) {
  const uint64_t part = uint64_t{1} << 60;
  for (const uint64_t last : {part - 1, part - 8, part - 1000}) {
    nlohmann::json header;
    for (uint64_t i = 0; i < 16; ++i) {
      const uint64_t begin = i * part, size = i == 15 ? last : part;
      header[std::to_string(i)] = {
          {"dtype", "U8"}, {"shape", {size}}, {"data_offsets", {begin, begin + size}}};
    }
    EXPECT_FALSE(Open(SafetensorsBytes(header.dump(), "")).ok());
    EXPECT_FALSE(Open(SafetensorsBytes(header.dump(), "12345678")).ok());
  }
}

TEST(SafetensorsTest, RefusesTheSameNameTwice) {
  const std::string entry = "\"a\":" + Entry("U8", "[0]", "[0,0]");
  EXPECT_TRUE(Open(SafetensorsBytes("{" + entry + "}", "")).ok());
  const absl::Status status = Open(SafetensorsBytes("{" + entry + "," + entry + "}", ""));
  EXPECT_THAT(std::string(status.message()), HasSubstr("duplicate"));
  // The same name, escaped.
  EXPECT_FALSE(
      Open(SafetensorsBytes("{" + entry + ",\"\\u0061\":" + Entry("U8", "[0]", "[0,0]") + "}", ""))
          .ok());
}

TEST(SafetensorsTest, NamesTheFileInErrors) {
  const auto missing = Safetensors::OpenFile("/nowhere/x.safetensors");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/nowhere/x.safetensors"));
}

class ShardsTest : public testing::Test {
 protected:
  absl::Status OpenWithIndex(const std::string& index) {
    WriteFile(folder_ / "model.safetensors.index.json", index);
    return Safetensors::OpenModel(folder_.path()).status();
  }
  void WriteShard(const std::string& name, const std::string& tensor) {
    WriteFile(folder_ / name, SafetensorsBytes({{tensor, {"U8", {1}, "x"}}}));
  }

  const TemporaryFolder folder_;
};

TEST_F(ShardsTest, FindsTensorsInAllShards) {
  WriteShard("1.safetensors", "a");
  WriteShard("2.safetensors", "b");
  EXPECT_TRUE(OpenWithIndex(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})").ok());
}

TEST_F(ShardsTest, RefusesNamesThatLeadElsewhere) {
  WriteShard("1.safetensors", "a");
  for (const std::string name : {"../1.safetensors", "/etc/passwd", "..", "a\\\\b", ".", ""}) {
    const absl::Status status = OpenWithIndex(R"({"weight_map":{"a":")" + name + "\"}}");
    EXPECT_THAT(std::string(status.message()), HasSubstr("plain file name")) << name;
  }
}

TEST_F(ShardsTest, RefusesAnIndexThatDoesNotMatch) {
  WriteShard("1.safetensors", "a");
  WriteShard("2.safetensors", "a");
  const auto map = [](const std::string& entries) { return "{\"weight_map\":{" + entries + "}}"; };
  EXPECT_FALSE(OpenWithIndex("{}").ok());
  EXPECT_FALSE(OpenWithIndex(map("")).ok());
  EXPECT_FALSE(OpenWithIndex(map(R"("a":1)")).ok());
  EXPECT_FALSE(OpenWithIndex(map(R"("b":"1.safetensors")")).ok());
  EXPECT_FALSE(OpenWithIndex(map(R"("a":"3.safetensors")")).ok());
  EXPECT_FALSE(OpenWithIndex(map(R"("a":"1.safetensors","b":"2.safetensors")")).ok());
  EXPECT_FALSE(OpenWithIndex(map(R"("a":"1.safetensors","a":"3.safetensors")")).ok());
  EXPECT_TRUE(OpenWithIndex(map(R"("a":"3.safetensors","a":"1.safetensors")")).ok());
  EXPECT_TRUE(OpenWithIndex(map(R"("a":"1.safetensors")")).ok());
}

TEST_F(ShardsTest, SaysWhatIsMissing) {
  const absl::Status nothing = Safetensors::OpenModel(folder_.path()).status();
  EXPECT_EQ(nothing.code(), absl::StatusCode::kNotFound);
  WriteFile(folder_ / "pytorch_model.bin", "");
  EXPECT_THAT(std::string(Safetensors::OpenModel(folder_.path()).status().message()),
              HasSubstr("Convert it, where torch and safetensors are"));
}

}  // namespace
}  // namespace castor::hf
