// Files of CAST layers: those that load, and those that are refused with the file and the tensor
// named.

#include "engine/encoder/directory/cast_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using testing::HasSubstr;

std::string Bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

absl::StatusOr<CastFile> Read(const std::map<std::string, RawTensor>& tensors) {
  const TemporaryFolder folder;
  WriteFile(folder / "x.safetensors", SafetensorsBytes(tensors));
  return ReadCastFile({.name = "long", .directory = folder / "x.safetensors"});
}

template <typename T>
T At(const std::byte* data, int64_t index) {
  T element;
  std::memcpy(&element, data + index * sizeof(T), sizeof(T));
  return element;
}

TEST(CastFileTest, IsToldFromADirectoryByItsEnding) {
  EXPECT_TRUE(IsCastFile("/models/long.safetensors"));
  EXPECT_FALSE(IsCastFile("/models/minilm"));
}

TEST(CastFileTest, LayersComeInEveryDType) {
  const std::vector<float> first = {1, -2, 0.5, 3, 0.25, -8};
  // 1.5 and -2 as bfloat16.
  const std::string second("\xc0\x3f\x00\xc0", 4);
  const auto file = Read({{"layers.0.surrogate_tokens", {"F32", {3, 1, 2}, Bytes(first)}},
                          {"layers.1.surrogate_tokens", {"BF16", {1, 1, 2}, second}},
                          {"layers.0.other", {"F32", {1}, Bytes({7})}}});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->info.name, "long");
  EXPECT_EQ(file->info.family, "cast_layers");
  EXPECT_EQ(file->info.layers, 2);
  EXPECT_EQ(file->info.heads, 1);
  EXPECT_EQ(file->info.parameters, 8);
  EXPECT_TRUE(file->info.outputs.empty());
  ASSERT_EQ(file->layers.size(), 2u);

  const attention::CastLayer& layer = *file->layers[0];
  EXPECT_EQ(layer.surrogate_tokens(), 3);
  EXPECT_EQ(layer.heads(), 1);
  EXPECT_EQ(layer.head_dim(), 2);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(At<float>(layer.data(DType::kFloat32), i), first[i]);
  EXPECT_EQ(At<uint16_t>(layer.data(DType::kFloat16), 1), 0xc000);   // -2
  EXPECT_EQ(At<uint16_t>(layer.data(DType::kBFloat16), 2), 0x3f00);  // 0.5
  EXPECT_EQ(reinterpret_cast<uintptr_t>(layer.data(DType::kBFloat16)) % 64, 0u);
  EXPECT_EQ(At<float>(file->layers[1]->data(DType::kFloat32), 0), 1.5f);
  EXPECT_EQ(At<float>(file->layers[1]->data(DType::kFloat32), 1), -2.0f);
}

TEST(CastFileTest, AnotherFileIsRefusedWithItsName) {
  const auto file = Read({{"embeddings.weight", {"F32", {1}, Bytes({7})}}});
  EXPECT_THAT(file.status().message(), HasSubstr("x.safetensors"));
  EXPECT_THAT(file.status().message(), HasSubstr("layers.0.surrogate_tokens"));
}

TEST(CastFileTest, BadTensorsAreRefusedWithTheirNames) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string name = "layers.0.surrogate_tokens";
  for (const RawTensor& bad :
       {RawTensor{"F32", {2, 1}, Bytes({1, 2})}, RawTensor{"F32", {0, 1, 2}, ""},
        RawTensor{"F64", {1, 1, 1}, std::string(8, '\0')},
        RawTensor{"F32", {1, 1, 1}, Bytes({nan})}}) {
    const auto file = Read({{name, bad}});
    ASSERT_FALSE(file.ok());
    EXPECT_THAT(file.status().message(), HasSubstr(name));
  }
}

TEST(CastFileTest, AMissingFileIsNotFound) {
  EXPECT_EQ(ReadCastFile({.name = "x", .directory = "/nowhere.safetensors"}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace castor::encoder
