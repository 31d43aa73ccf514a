#include "tests/unit/encoder/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "engine/attention/variants.h"
#include "engine/base/run_control.h"
#include "engine/encoder/directory/load.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/text/output_types.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {

std::string GoldenDirectory() { return CASTOR_GOLDEN_ENCODER_DIR; }

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  EXPECT_TRUE(file.flush()) << path;
}

std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i)));
  return bytes + header + data;
}

std::string SafetensorsBytes(const std::map<std::string, RawTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
    data += tensor.data;
  }
  return SafetensorsBytes(header.dump(), data);
}

TinyModel::TinyModel(const std::string& name) {
  std::filesystem::copy(GoldenDirectory() + "/" + name, folder_.path(),
                        std::filesystem::copy_options::recursive);
}

void TinyModel::EditJson(const std::string& name,
                         const std::function<void(nlohmann::json&)>& edit) {
  nlohmann::json json = nlohmann::json::parse(ReadFile(folder_ / name));
  edit(json);
  WriteFile(folder_ / name, json.dump());
}

void TinyModel::EditWeights(const std::function<void(std::map<std::string, RawTensor>&)>& edit) {
  const std::string path = folder_ / "model.safetensors";
  std::map<std::string, RawTensor> tensors;
  {
    auto file = hf::Safetensors::OpenFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    for (const auto& [name, tensor] : (*file)->tensors()) {
      tensors[name] = {std::string(tensor.dtype),
                       tensor.shape,
                       {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()}};
    }
  }
  edit(tensors);
  WriteFile(path, SafetensorsBytes(tensors));
}

absl::StatusOr<std::shared_ptr<Model>> TinyModel::Load(DType dtype) const {
  return LoadOnCpu(folder_.path(), dtype);
}

std::string ErrorOf(const TinyModel& model, DType dtype) {
  const auto loaded = model.Load(dtype);
  return loaded.ok() ? "" : std::string(loaded.status().message());
}

void ExpectKeysRefused(const std::string& name, const std::vector<RefusedKey>& cases) {
  ASSERT_EQ(ErrorOf(TinyModel(name)), "");
  for (const RefusedKey& bad : cases) {
    TinyModel files(name);
    files.EditJson("config.json", [&](nlohmann::json& config) { config[bad.key] = bad.value; });
    EXPECT_THAT(ErrorOf(files),
                testing::AllOf(testing::HasSubstr("config.json: "), testing::HasSubstr(bad.key),
                               testing::HasSubstr(bad.says)))
        << name << ": " << bad.key << " = " << bad.value;
  }
}

void ExpectTensorsNeeded(const std::string& name, const std::vector<std::string>& tensors) {
  for (const std::string& tensor : tensors) {
    TinyModel files(name);
    files.EditWeights([&](auto& weights) { ASSERT_EQ(weights.erase(tensor), 1U) << tensor; });
    EXPECT_THAT(ErrorOf(files), testing::AllOf(testing::HasSubstr(files.directory()),
                                               testing::HasSubstr("\"" + tensor + "\"")));
  }
}

absl::StatusOr<std::vector<float>> RowsOf(std::shared_ptr<const Model> model,
                                          const EncodeRequest& request, const Prepared& prepared) {
  const ModelInfo& info = model->info();
  BatchItem item{
      .cu_seqlens = prepared.cu_seqlens, .ids = prepared.ids, .type_ids = prepared.type_ids};
  item.hidden = prepared.hidden;
  item.kept = prepared.kept;
  item.kept_seqlens = prepared.kept_seqlens;
  item.output_kind = *request.output;
  item.pooling = info.pooling;
  item.normalize = info.normalize;
  item.dimensions = DimensionsOf(request, info, item.output_kind);
  item.cut_last = true;
  item.token_labels = info.token_labels;
  // The model may leave a prompt's tokens out of pooling.
  const RowRange pooled{prepared.left_out, prepared.cu_seqlens.back()};
  if (item.output_kind == EncodeOutput::kPooled && pooled.begin > 0) item.spans = {&pooled, 1};
  std::vector<float> rows(static_cast<size_t>(item.output_rows() * item.dimensions), NAN);
  item.output = rows.data();
  const Batch batch{.model = std::move(model), .kernel = Vanilla{}, .items = {item}};
  if (absl::Status status = RunOnHost(batch, RunToEnd()); !status.ok()) return status;
  return rows;
}

absl::Status RunOnCpu(const attention::Spec& spec, const attention::Problem& problem,
                      RunControl& control) {
  const attention::Variant* variant = attention::FindVariant(attention::CpuVariants(), spec);
  if (variant == nullptr) return absl::InternalError("no variant");
  return variant->run(spec, {&problem, 1}, control);
}

absl::StatusOr<std::unique_ptr<hf::Tokenizer>> OpenTokenizer(const std::string& path) {
  hf::TokenizerFiles files;
  files.tokenizer = ReadFile(path);
  files.settings = R"({"class": "TokenizersBackend", "lowercase": false, "tokenizer_config": {}})";
  return hf::Tokenizer::Open(files);
}

absl::StatusOr<std::shared_ptr<Model>> LoadOnCpu(const std::string& directory, DType dtype) {
  return LoadModel({.name = "test", .directory = directory, .dtype = dtype}, at::Device(at::kCPU),
                   RunOnCpu);
}

}  // namespace castor::encoder
