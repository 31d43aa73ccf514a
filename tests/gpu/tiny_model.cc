#include "tests/gpu/tiny_model.h"

#include <cmath>
#include <fstream>
#include <random>
#include <string_view>
#include <vector>

namespace castor::gpu {
namespace {

// Collects float32 tensors and writes them as one safetensors file: the header's length, the header
// in JSON, the data.
class Safetensors {
 public:
  explicit Safetensors(uint32_t seed) : random_(seed) {}

  // Normal values around `mean`.
  void Add(const std::string& name, const std::vector<int64_t>& shape, float mean,
           float deviation) {
    int64_t count = 1;
    std::string dims;
    for (const int64_t dim : shape) {
      count *= dim;
      dims.append(dims.empty() ? "" : ",").append(std::to_string(dim));
    }
    const size_t begin = data_.size() * sizeof(float);
    std::normal_distribution<float> normal(mean, deviation);
    for (int64_t i = 0; i < count; ++i) data_.push_back(normal(random_));
    header_.append(header_.empty() ? "" : ",").append(R"(")").append(name);
    header_.append(R"(":{"dtype":"F32","shape":[)").append(dims).append(R"(],"data_offsets":[)");
    header_.append(std::to_string(begin)).append(",");
    header_.append(std::to_string(data_.size() * sizeof(float))).append("]}");
  }

  void AddLinear(const std::string& name, int64_t out, int64_t in) {
    Add(name + ".weight", {out, in}, 0, 1 / std::sqrt(static_cast<float>(in)));
    Add(name + ".bias", {out}, 0, 0.1f);
  }

  void AddNorm(const std::string& name, int64_t size) {
    Add(name + ".weight", {size}, 1, 0.1f);
    Add(name + ".bias", {size}, 0, 0.1f);
  }

  bool Write(const std::string& path) const {
    std::string header = "{" + header_ + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header;
    file.write(reinterpret_cast<const char*>(data_.data()),
               static_cast<std::streamsize>(data_.size() * sizeof(float)));
    return file.good();
  }

 private:
  std::mt19937 random_;
  std::string header_;
  std::vector<float> data_;
};

bool WriteText(const std::string& path, std::string_view text) {
  std::ofstream file(path);
  file << text;
  return file.good();
}

std::string Config(const TinyModel& m) {
  std::string config = R"({"model_type":"bert","architectures":["BertModel"],"hidden_act":"gelu",)"
                       R"("layer_norm_eps":1e-12,"position_embedding_type":"absolute")";
  const auto add = [&config](std::string_view name, int64_t value) {
    config.append(R"(,")").append(name).append(R"(":)").append(std::to_string(value));
  };
  add("hidden_size", m.hidden);
  add("num_attention_heads", m.heads);
  add("num_hidden_layers", m.layers);
  add("intermediate_size", m.intermediate);
  add("vocab_size", m.vocabulary);
  add("max_position_embeddings", m.positions);
  add("type_vocab_size", 2);
  add("pad_token_id", 0);
  return config.append("}");
}

constexpr std::string_view kTokenizer =
    R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,)"
    R"("pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,)"
    R"("model":{"type":"WordLevel","vocab":{"[UNK]":0,"one":1,"two":2},"unk_token":"[UNK]"}})";

// Without this file the model type chooses the tokenizer's class, and BERT's makes a WordPiece.
constexpr std::string_view kTokenizerConfig = R"({"tokenizer_class":"PreTrainedTokenizerFast"})";

}  // namespace

bool WriteTinyModel(const TinyModel& m, const std::string& directory, uint32_t seed) {
  Safetensors weights(seed);
  weights.Add("embeddings.word_embeddings.weight", {m.vocabulary, m.hidden}, 0, 1);
  weights.Add("embeddings.position_embeddings.weight", {m.positions, m.hidden}, 0, 1);
  weights.Add("embeddings.token_type_embeddings.weight", {2, m.hidden}, 0, 1);
  weights.AddNorm("embeddings.LayerNorm", m.hidden);
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string layer = "encoder.layer." + std::to_string(i) + ".";
    for (const char* part : {"query", "key", "value"}) {
      weights.AddLinear(layer + "attention.self." + part, m.hidden, m.hidden);
    }
    weights.AddLinear(layer + "attention.output.dense", m.hidden, m.hidden);
    weights.AddNorm(layer + "attention.output.LayerNorm", m.hidden);
    weights.AddLinear(layer + "intermediate.dense", m.intermediate, m.hidden);
    weights.AddLinear(layer + "output.dense", m.hidden, m.intermediate);
    weights.AddNorm(layer + "output.LayerNorm", m.hidden);
  }
  return weights.Write(directory + "/model.safetensors") &&
         WriteText(directory + "/config.json", Config(m)) &&
         WriteText(directory + "/tokenizer.json", kTokenizer) &&
         WriteText(directory + "/tokenizer_config.json", kTokenizerConfig);
}

}  // namespace castor::gpu
