// Model directories for tests: copies of the tiny BERT of tests/golden/encoder that tests may
// modify, and the attention that models run on here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention/problem.h"
#include "engine/base/run_control.h"
#include "engine/encoder/model.h"
#include "engine/hf/tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace castor::encoder {

// The path of tests/golden/encoder.
std::string GoldenDirectory();

struct RawTensor {
  std::string dtype;  // "F32"
  std::vector<int64_t> shape;
  std::string data;
};

// A safetensors file with these tensors.
std::string SafetensorsBytes(const std::map<std::string, RawTensor>& tensors);

// A safetensors file with exactly this header and data.
std::string SafetensorsBytes(const std::string& header, const std::string& data);

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);

// The tiny BERT's hidden size.
inline constexpr int64_t kHidden = 24;

// A copy of the tiny BERT: hidden 24, 3 heads, 2 layers, at most 32 tokens, CLS pooling. Or of
// another directory of tests/golden/encoder.
class TinyModel {
 public:
  explicit TinyModel(const std::string& name = "tiny_bert");

  std::string operator/(const std::string& name) const { return folder_ / name; }
  std::string directory() const { return folder_.path(); }

  // Each rewrites one file.
  void EditJson(const std::string& name, const std::function<void(nlohmann::json&)>& edit);
  void EditWeights(const std::function<void(std::map<std::string, RawTensor>&)>& edit);

  absl::StatusOr<std::shared_ptr<Model>> Load(DType dtype = DType::kFloat32) const;

 private:
  TemporaryFolder folder_;
};

// Why the model cannot be loaded; empty if it can.
std::string ErrorOf(const TinyModel& model, DType dtype = DType::kFloat32);

// A value of a key of config.json, and what the error must say besides both names.
struct RefusedKey {
  const char* key;
  nlohmann::json value;
  const char* says;
};

// That the golden directory `name` is served, and with each of these refused.
void ExpectKeysRefused(const std::string& name, const std::vector<RefusedKey>& cases);

// That `name` is not served without one of these, and the error names directory and tensor.
void ExpectTensorsNeeded(const std::string& name, const std::vector<std::string>& tensors);

// The CPU's attention: an AttentionFn.
absl::Status RunOnCpu(const attention::Spec& spec, const attention::Problem& problem,
                      RunControl& control);

// For loops over golden data.
inline constexpr EncodeOutput kAllOutputs[] = {
    EncodeOutput::kPooled, EncodeOutput::kTokenEmbeddings, EncodeOutput::kLogits,
    EncodeOutput::kScores, EncodeOutput::kSparse};

// The answer of the model to one request that names its output, alone in its batch.
absl::StatusOr<std::vector<float>> RowsOf(std::shared_ptr<const Model> model,
                                          const EncodeRequest& request, const Prepared& prepared);

// Makes the tokenizer that the tokenizer.json at `path` is by itself.
absl::StatusOr<std::unique_ptr<hf::Tokenizer>> OpenTokenizer(const std::string& path);

// Loads `directory` on the CPU with the CPU's attention.
absl::StatusOr<std::shared_ptr<Model>> LoadOnCpu(const std::string& directory,
                                                 DType dtype = DType::kFloat32);

}  // namespace castor::encoder
