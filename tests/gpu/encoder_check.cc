#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/gpu/checks.h"

namespace castor::gpu {
namespace {

// A small BERT with random weights, where no real model is available.
struct TinyModel {
  int64_t hidden = 128;
  int64_t heads = 4;
  int64_t layers = 3;
  int64_t intermediate = 512;
  int64_t vocabulary = 1000;
  int64_t positions = 512;
};

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

// Writes config.json, model.safetensors and the tokenizer's files into `directory`, which must
// exist. Returns whether all files could be written.
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

constexpr char kFloatModel[] = "tiny-float32";
constexpr char kBFloat16Model[] = "tiny-bfloat16";

absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(const std::string& device,
                                                   const std::string& directory) {
  EngineOptions options;
  options.device = device;
  options.models = {{kFloatModel, directory, DType::kFloat32},
                    {kBFloat16Model, directory, DType::kBFloat16}};
  options.batch_delay = std::chrono::milliseconds(2);  // lets requests share batches
  return CreateEngine(options);
}

struct EncodeCase {
  std::vector<int64_t> lengths;
  EncodeOutput output = EncodeOutput::kPooled;
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
  int64_t dimensions = 0;
  size_t spans = 0;  // pooled instead of the sequences, if not 0
  uint32_t seed = 0;
};

EncodeRequest RequestFor(const EncodeCase& c, const std::string& model, const TinyModel& tiny) {
  std::mt19937 random(c.seed);
  TokenInput tokens;
  tokens.lengths = c.lengths;
  for (const int64_t length : c.lengths) {
    for (int64_t t = 0; t < length; ++t) {
      tokens.ids.push_back(static_cast<int64_t>(random() % tiny.vocabulary));
      tokens.type_ids.push_back(static_cast<int64_t>(random() % 2));
    }
  }
  EncodeRequest request;
  request.model = model;
  request.input = std::move(tokens);
  request.output = c.output;
  if (c.output == EncodeOutput::kPooled) request.pooling = c.pooling;
  request.normalize = c.normalize;
  request.dimensions = c.dimensions;
  for (size_t i = 0; i < c.spans; ++i) {
    const size_t sequence = random() % c.lengths.size();
    const int64_t length = c.lengths[sequence], begin = random() % length;
    request.spans.ranges.push_back(
        {.sequence = static_cast<int32_t>(sequence),
         .begin = begin,
         .end = begin + 1 + static_cast<int64_t>(random()) % (length - begin)});
  }
  return request;
}

// Submits all requests at once, so that they share batches. One answer each, in order.
std::vector<absl::StatusOr<EncodeResult>> EncodeAll(Engine& engine,
                                                    std::vector<EncodeRequest> requests) {
  std::vector<std::promise<absl::StatusOr<EncodeResult>>> promises(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    std::promise<absl::StatusOr<EncodeResult>>& promise = promises[i];
    const auto ticket = engine.Submit(
        std::move(requests[i]), EncodeCompletion([&promise](absl::StatusOr<EncodeResult> result) {
          promise.set_value(std::move(result));
        }));
    if (!ticket.ok()) promise.set_value(ticket.status());
  }
  std::vector<absl::StatusOr<EncodeResult>> results;
  for (auto& promise : promises) results.push_back(promise.get_future().get());
  return results;
}

// The largest difference relative to the largest value; infinite if they cannot be compared.
double Difference(const absl::StatusOr<EncodeResult>& a, const absl::StatusOr<EncodeResult>& b) {
  if (!a.ok() || !b.ok() || a->output.shape != b->output.shape) {
    return std::numeric_limits<double>::infinity();
  }
  const size_t count = a->output.data.size() / sizeof(float);
  double worst = 0;
  double top = 0;
  for (size_t i = 0; i < count; ++i) {
    const double x = a->output.data.as<float>()[i];
    const double y = b->output.data.as<float>()[i];
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(x - y));
    top = std::max(top, std::abs(y));
  }
  return worst / top;
}

std::string ErrorOf(const absl::StatusOr<EncodeResult>& result) {
  return result.ok() ? "" : ": " + std::string(result.status().message());
}

}  // namespace

void CheckEncoder(const std::string& device, uint32_t seed, Report& report) {
  report.Section("a small encoder model on " + device + " against the CPU");
  std::string directory = (std::filesystem::temp_directory_path() / "castor-XXXXXX").string();
  const TinyModel tiny;
  if (!report.Check(mkdtemp(directory.data()) != nullptr && WriteTinyModel(tiny, directory, seed),
                    "a model directory can be written")) {
    return;
  }
  const auto cpu = OpenEngine("cpu", directory);
  const auto engine = OpenEngine(device, directory);
  std::filesystem::remove_all(directory);
  if (!report.Check(cpu.ok(), "loads on the CPU: " + std::string(cpu.status().message())) ||
      !report.Check(engine.ok(),
                    "loads on " + device + ": " + std::string(engine.status().message()))) {
    return;
  }
  std::mt19937 random(seed);
  std::vector<EncodeCase> cases(30);
  for (EncodeCase& c : cases) {
    c.seed = random();
    c.lengths.resize(1 + random() % 5);
    for (int64_t& length : c.lengths) length = 1 + random() % (random() % 4 == 0 ? 500 : 40);
    c.output = random() % 4 == 0 ? EncodeOutput::kTokenEmbeddings : EncodeOutput::kPooled;
    c.pooling = kAllPoolings[random() % std::size(kAllPoolings)];
    c.normalize = random() % 2;
    c.dimensions = random() % 3 == 0 ? 64 : 0;
    if (c.output == EncodeOutput::kPooled && random() % 3 == 0) c.spans = 1 + random() % 30;
  }
  for (const auto& [model, tolerance] :
       {std::pair(kFloatModel, 1e-4), std::pair(kBFloat16Model, 0.1)}) {
    std::vector<EncodeRequest> requests, reference;
    for (const EncodeCase& c : cases) {
      requests.push_back(RequestFor(c, model, tiny));
      reference.push_back(RequestFor(c, kFloatModel, tiny));
    }
    const auto expected = EncodeAll(**cpu, std::move(reference));
    const auto results = EncodeAll(**engine, std::move(requests));
    double worst = 0;
    std::string error, backend;
    for (size_t i = 0; i < results.size(); ++i) {
      worst = std::max(worst, Difference(results[i], expected[i]));
      if (!results[i].ok()) error = ErrorOf(results[i]);
      if (results[i].ok()) backend = results[i]->report.kernel.backend;
    }
    char text[96];
    std::snprintf(text, sizeof(text), "%s on %s: difference %.1e, allowed %.1e", model,
                  backend.c_str(), worst, tolerance);
    report.Check(worst <= tolerance, text + error);
  }
}

}  // namespace castor::gpu
