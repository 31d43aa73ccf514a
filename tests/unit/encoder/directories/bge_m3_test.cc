// BGE-M3's layers, in files next to the transformer (tests/golden/encoder/make_bge_m3.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/encoder/text/output_types.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFolder = "heads/bge_m3";

std::string FileOfM3(const std::string& name) {
  return ReadFile(GoldenDirectory() + "/" + kFolder + "/" + name);
}

TEST(BgeM3Test, SaysWhatItGives) {
  const auto model = LoadOnCpu(GoldenDirectory() + "/" + kFolder, DType::kFloat32);
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  using enum EncodeOutput;
  EXPECT_THAT(info.outputs, ElementsAre(kPooled, kSparse, kTokenEmbeddings));
  EXPECT_EQ(info.pooling, Pooling::kCls);
  EXPECT_TRUE(info.normalize);
  EXPECT_EQ(WidthOf(info, kTokenEmbeddings), 6);
  // SPARSE needs ids.
  EncodeRequest request;
  request.output = kSparse;
  request.input = EmbeddingInput{.values = {.shape = {1, 8}, .pieces = {}}, .lengths = {}};
  EXPECT_FALSE((*model)->CheckInput(request, 8, 100).ok());
}

// FlagEmbedding saves the layers as pickles. A model without them would be another model.
TEST(BgeM3Test, PicklesAreRefusedWithTheCommandThatConvertsThem) {
  for (const char* layer : {"sparse_linear", "colbert_linear"}) {
    const TinyModel files(kFolder);
    std::filesystem::rename(files / (std::string(layer) + ".safetensors"),
                            files / (std::string(layer) + ".pt"));
    EXPECT_THAT(ErrorOf(files), HasSubstr(std::string(layer) + ".pt: .pt files are not read"));
    EXPECT_THAT(ErrorOf(files), HasSubstr("torch.load(f + '.pt', 'cpu', weights_only=True)"));
  }
}

TEST(BgeM3Test, LayersAreNeverIgnored) {
  {
    const TinyModel files(kFolder);
    std::filesystem::remove(files / "colbert_linear.safetensors");
    EXPECT_THAT(ErrorOf(files), HasSubstr("colbert_linear.safetensors: missing"));
  }
  {
    const TinyModel files(kFolder);
    WriteFile(files / "sparse_linear.safetensors", FileOfM3("colbert_linear.safetensors"));
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear.safetensors: weight: shape is [6, 8]"));
  }
  {
    const TinyModel files(kFolder);
    WriteFile(files / "sparse_linear.safetensors", "");
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear.safetensors"));
  }
  {
    const TinyModel files("heads/splade_bert");
    WriteFile(files / "sparse_linear.pt", "a pickle");
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear"));
  }
}

}  // namespace
}  // namespace castor::encoder
