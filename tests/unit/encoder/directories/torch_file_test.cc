// torch's files beside a model (tests/golden/encoder/make_bge_m3.py): read, broken and hostile.
#include "engine/encoder/directory/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "engine/encoder/text/output_types.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kM3Folder = "heads/bge_m3";

std::string FileOfM3(const std::string& name) {
  return ReadFile(GoldenDirectory() + "/" + kM3Folder + "/" + name);
}

std::string PickleProblem(std::string_view pickle) {
  return std::string(ReadPickledTensors(pickle).status().message());
}

TEST(TorchFileTest, ReadsWhatTorchSaves) {
  const auto file = TorchFile::Open(GoldenDirectory() + "/" + kM3Folder + "/colbert_linear.pt");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tensors().size(), 2U);
  EXPECT_EQ((*file)->Find("weight")->dtype, "F16");
  EXPECT_THAT((*file)->Find("weight")->shape, ElementsAre(6, 8));
  EXPECT_EQ((*file)->Find("bias")->data.size(), 12U);
}

TEST(TorchFileTest, RunsNothing) {
  EXPECT_THAT(PickleProblem("\x80\x02"
                            "cos\nsystem\nX\x04\0\0\0true\x85R."),
              HasSubstr("ends too early"));  // at the literal's first zero
  using namespace std::string_literals;
  EXPECT_THAT(PickleProblem("\x80\x02"
                            "cos\nsystem\nX\x04\0\0\0true\x85R."s),
              HasSubstr("calls os.system"));
  EXPECT_THAT(PickleProblem("c__builtin__\neval\n)\x81."), HasSubstr("instruction 129"));
  EXPECT_THAT(PickleProblem("ccollections\nOrderedDict\n)"), HasSubstr("ends too early"));
  EXPECT_THAT(PickleProblem("RRRR"), HasSubstr("takes more values"));
  EXPECT_THAT(PickleProblem("}(K\x01K\x02u."), HasSubstr("no names"));
  EXPECT_THAT(PickleProblem("}h\x07."), HasSubstr("repeats what is not there"));
  EXPECT_THAT(PickleProblem("K\x01."), HasSubstr("no state dict"));
  EXPECT_THAT(PickleProblem("t."), HasSubstr("lacks a mark"));
  EXPECT_THAT(PickleProblem(std::string(kMostPickleBytes, ')')), HasSubstr("ends too early"));
  EXPECT_THAT(PickleProblem(")" + std::string(kMostPickleBytes - 2, '\x85') + "."),
              HasSubstr("no state dict"));
}

// Cut off anywhere, or with bytes changed: an error that names the file, or tensors.
TEST(TorchFileTest, BrokenFilesAreErrors) {
  const TinyModel files(kM3Folder);
  const std::string whole = FileOfM3("sparse_linear.pt");
  const std::string path = files / "sparse_linear.pt";
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    if (i % 4 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      for (int k = 0; k <= i % 4; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    WriteFile(path, bytes);
    const auto file = TorchFile::Open(path);
    if (file.ok()) continue;
    ++refused;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr("sparse_linear.pt: "));
  }
  EXPECT_GT(refused, 500);
}

TEST(TorchFileTest, ABgeM3SaysWhatItGives) {
  const auto model = LoadOnCpu(GoldenDirectory() + "/" + kM3Folder, DType::kFloat32);
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  using enum EncodeOutput;
  EXPECT_THAT(info.outputs, ElementsAre(kPooled, kSparse, kTokenEmbeddings));
  EXPECT_EQ(info.pooling, Pooling::kCls);
  EXPECT_TRUE(info.normalize);
  EXPECT_EQ(WidthOf(info, kTokenEmbeddings), 6);
  // SPARSE is of ids.
  EncodeRequest request;
  request.output = kSparse;
  request.input = EmbeddingInput{.values = {.shape = {1, 8}, .pieces = {}}, .lengths = {}};
  request.output = kSparse;
  EXPECT_FALSE((*model)->CheckInput(request, 8, 100).ok());
}

TEST(TorchFileTest, LayersOfBgeM3AreNeverIgnored) {
  {
    const TinyModel files(kM3Folder);
    std::filesystem::remove(files / "colbert_linear.pt");
    EXPECT_THAT(ErrorOf(files), HasSubstr("lacks colbert_linear"));
  }
  {
    const TinyModel files(kM3Folder);
    WriteFile(files / "sparse_linear.pt", "not a zip");
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear.pt: is not what torch.save writes"));
  }
  {
    const TinyModel files(kM3Folder);
    WriteFile(files / "sparse_linear.pt", FileOfM3("colbert_linear.pt"));
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear.pt: weight: shape is [6, 8]"));
  }
  {
    const TinyModel files(kM3Folder);
    WriteFile(files / "sparse_linear.safetensors", "");
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear.safetensors"));
  }
  {
    const TinyModel files("heads/splade_bert");
    WriteFile(files / "sparse_linear.pt", FileOfM3("sparse_linear.pt"));
    EXPECT_THAT(ErrorOf(files), HasSubstr("sparse_linear"));
  }
}

}  // namespace
}  // namespace castor::encoder
