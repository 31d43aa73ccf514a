// What runs really take of the CPU's memory, all allocations counted, against what was predicted of
// their requests: random batches for every kernel, and of encoders.
//
// Each batch runs twice, and the second run counts: what libraries make for a shape, and keep, is
// not of the run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/encoder/text/output_types.h"
#include "engine/encoder/text/spans.h"
#include "engine/forecast/memory.h"
#include "engine/loop/engine_loop.h"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/heap_meter.h"
#include "tests/support/seeded.h"
#include "tests/unit/encoder/model_files.h"

namespace castor {
namespace {

using attention::CastProblem;
using attention::OwnedProblem;
using attention::Spec;

// One encode request of a batch, with its memory.
struct Encoding {
  EncodeRequest request;
  std::vector<int32_t> offsets;
  std::vector<int64_t> ids;
  std::vector<encoder::RowRange> spans;
  std::vector<float> output;
};

enum class Rows { kAny, kMany };

class MeasuredMemoryTest : public testing::Test, protected Seeded {
 protected:
  MeasuredMemoryTest() {
    EngineOptions options;
    options.device = "cpu";
    options.cpu_threads = UpTo(4);
    device_ = *OpenDevice(options);
    forecast_ = std::make_unique<MemoryForecast>(device_->variants(), device_->copies_tensors());
  }

  bool Toss() { return Uniform(0, 1) == 0; }

  // Many short sequences, a few of any length, or so many long ones that not all heads go by at
  // once.
  std::vector<int32_t> Lengths(Rows rows = Rows::kAny) {
    if (rows == Rows::kMany) {
      std::vector<int32_t> lengths(static_cast<size_t>(Uniform(12, 16)));
      for (int32_t& length : lengths) length = Uniform(900, 1100);
      return lengths;
    }
    const bool many = Toss();
    std::vector<int32_t> lengths(static_cast<size_t>(UpTo(many ? 200 : 4)));
    for (int32_t& length : lengths) length = UpTo(many ? 10 : 2000);
    return lengths;
  }

  Kernel RandomKernel() {
    switch (Uniform(0, 3)) {
      case 0:
        return Vanilla{};
      case 1:
        return attention::PlainClusters(UpTo(300), random_());
      case 2:
        return attention::ImprovedClusters(UpTo(300), UpTo(64), random_());
      default:
        return attention::CastReading(static_cast<int>(Uniform(0, attention::kCastReadings - 1)));
    }
  }

  // In bytes; no less than what the device reports.
  template <typename Batch>
  int64_t PeakOf(const Batch& batch) {
    EXPECT_TRUE(device_->Launch(batch, RunToEnd()).ok());
    const HeapMeter meter;
    const auto execution = device_->Launch(batch, RunToEnd());
    const int64_t peak = meter.peak();
    EXPECT_TRUE(execution.ok()) << execution.status();
    return execution.ok() ? std::max(peak, (*execution)->Wait()->workspace_bytes) : peak;
  }

  void CheckAttention();
  void CheckEncoder(const LoadedModel& model, bool heads = false, Rows rows = Rows::kAny);
  void AddSpans(Encoding* one);

  std::unique_ptr<Device> device_;
  std::unique_ptr<MemoryForecast> forecast_;
};

void MeasuredMemoryTest::CheckAttention() {
  const Kernel kernel = RandomKernel();
  const bool cast = std::holds_alternative<Cast>(kernel);
  const Spec spec = attention::MakeSpec(static_cast<DType>(Uniform(0, 2)), kernel, UpTo(8),
                                        UpTo(80), UpTo(80), cast ? UpTo(40) : 0);
  std::vector<std::unique_ptr<CastProblem>> layers;
  std::vector<std::unique_ptr<OwnedProblem>> problems;
  AttentionBatch batch{.spec = spec, .requests = {}};
  MemoryNeed memory;
  for (int64_t left = UpTo(3); left > 0; --left) {
    const std::vector<int32_t> lengths = Lengths();
    if (cast) {
      layers.push_back(std::make_unique<CastProblem>(spec, lengths, random_));
      batch.requests.push_back(layers.back()->problem.view);
    } else {
      problems.push_back(std::make_unique<OwnedProblem>(spec, lengths, lengths));
      problems.back()->Randomize(random_);
      batch.requests.push_back(problems.back()->view);
    }
    attention::Resolved resolved;
    resolved.spec = spec;
    resolved.cu_seqlens_q = resolved.cu_seqlens_k = attention::OffsetsOf(lengths);
    memory = memory + forecast_->Of(Plan(), resolved);
  }
  EXPECT_LE(PeakOf(batch), memory.bytes())
      << attention::Describe(spec) << ", " << batch.requests.size() << " requests";
}

TEST_F(MeasuredMemoryTest, OfAttentionIsAtMostWhatWasPredicted) {
  for (int round = 0; round < Rounds(60) && !HasFailure(); ++round) CheckAttention();
}

// What varies of a small checkpoint.
struct Sizes {
  int64_t heads;
  int64_t head_dim;
  int64_t intermediate;
  std::string activation;
  int64_t window;

  int64_t hidden() const { return heads * head_dim; }
};

using Resized = std::map<int64_t, int64_t>;

// A small checkpoint with other sizes, and weights that mean nothing.
struct Checkpoint {
  const char* directory;
  Resized (*resized)(const Sizes& s);  // what its weights' sizes become
  // Its config's keys that EditConfig does not know.
  void (*edit)(const Sizes& sizes, nlohmann::json& config) = [](const Sizes&, nlohmann::json&) {};
  bool has_activation = true;  // false: another key says it
};

constexpr int64_t kPositions = 2000;

void EditConfig(const Checkpoint& checkpoint, const Sizes& sizes, nlohmann::json& config) {
  config["hidden_size"] = sizes.hidden();
  config["num_attention_heads"] = sizes.heads;
  config["intermediate_size"] = sizes.intermediate;
  config["max_position_embeddings"] = kPositions;
  if (config.contains("head_dim")) config["head_dim"] = sizes.head_dim;
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    if (checkpoint.has_activation && config.contains(key)) config[key] = sizes.activation;
  }
  checkpoint.edit(sizes, config);
}

constexpr Checkpoint kCheckpoints[] = {
    {"tiny_bert",
     [](const Sizes& s) -> Resized {
       return {{24, s.hidden()}, {40, s.intermediate}, {32, kPositions}};
     }},
    {"families/modernbert",
     // The MLP's matrix into both halves has as many rows as attention's.
     [](const Sizes& s) -> Resized {
       return {{24, s.hidden()}, {36, s.intermediate}};
     },
     [](const Sizes& s, nlohmann::json& config) { config["local_attention"] = 2 * s.window; }},
    {"families/nomic_bert",
     [](const Sizes& s) -> Resized {
       return {{24, s.hidden()}, {40, s.intermediate}, {72, 3 * s.hidden()}};
     }},
    {.directory = "families/jina_bert_code",
     .resized = [](const Sizes& s) -> Resized {
       return {{24, s.hidden()}, {40, s.intermediate}, {80, 2 * s.intermediate}};
     },
     .has_activation = false},
    {"families/gemma",
     [](const Sizes& s) -> Resized {
       return {{24, s.hidden()}, {40, s.intermediate}, {8, s.head_dim}};
     },
     [](const Sizes& s, nlohmann::json& config) { config["sliding_window"] = 2 * s.window; }},
    {"families/eurobert_biases",
     [](const Sizes& s) -> Resized {
       return {{24, s.hidden()}, {40, s.intermediate}, {8, s.head_dim}};
     }},
    {"families/deberta",
     [](const Sizes& s) -> Resized {
       return {{24, s.hidden()}, {40, s.intermediate}};
     },
     [](const Sizes& s, nlohmann::json& config) { config["pooler_hidden_size"] = s.hidden(); }},
    {"families/deberta_conv",
     [](const Sizes& s) -> Resized {
       return {{24, s.hidden()}, {40, s.intermediate}};
     },
     [](const Sizes& s, nlohmann::json& config) { config["pooler_hidden_size"] = s.hidden(); }},
    {.directory = "families/nomic_bert_moe",
     .resized = [](const Sizes& s) -> Resized {
       return {
           {24, s.hidden()}, {12, s.intermediate}, {60, 5 * s.intermediate}, {72, 3 * s.hidden()}};
     },
     .edit =
         [](const Sizes& s, nlohmann::json& config) {
           config.erase("hidden_size");
           config["n_embd"] = s.hidden();
           config["n_head"] = s.heads;
           config["n_inner"] = s.intermediate;
           config["n_positions"] = kPositions;
         },
     .has_activation = false},
    {"families/electra",
     [](const Sizes& s) -> Resized {
       return {{24, s.hidden()}, {40, s.intermediate}, {32, kPositions}, {16, 2 * s.hidden()}};
     },
     [](const Sizes& s, nlohmann::json& config) { config["embedding_size"] = 2 * s.hidden(); }},
    {"families/qwen3_windows",
     [](const Sizes& s) -> Resized {
       const int64_t head = s.head_dim + 8;
       return {{24, s.hidden()}, {40, s.intermediate}, {16, s.heads * head}, {4, head}};
     },
     [](const Sizes& s, nlohmann::json& config) {
       config["head_dim"] = s.head_dim + 8;  // so that heads are wider than rows
       config["sliding_window"] = s.window + 1;
     }},
    {"adapters/jina_v3",
     [](const Sizes& s) -> Resized {
       return {{16, s.hidden()}, {24, s.intermediate}, {48, 3 * s.hidden()}};
     }},
    {"cast/top_k",
     // Clusters were as many as a head's elements, labels as many as heads.
     [](const Sizes& s) -> Resized {
       return {
           {12, s.hidden()}, {20, s.intermediate}, {3, s.heads}, {4, s.head_dim}, {40, kPositions}};
     },
     [](const Sizes& s, nlohmann::json& config) {
       config["hidden_act"] = s.activation;
       config["cast_clusters"] = s.head_dim;
       config.erase("id2label");
       config["num_labels"] = s.heads;
     }},
};

// Zeros of other sizes. `rows` may change a tensor's first one further.
void ResizeWeights(
    const Resized& to, encoder::TinyModel& model,
    const std::function<void(const std::string& name, int64_t& rows)>& rows = [](auto&, auto&) {}) {
  model.EditWeights([&](std::map<std::string, encoder::RawTensor>& tensors) {
    for (auto& [name, tensor] : tensors) {
      for (int64_t& size : tensor.shape) {
        if (const auto found = to.find(size); found != to.end()) size = found->second;
      }
      if (!tensor.shape.empty()) rows(name, tensor.shape[0]);
      int64_t elements = 1;
      for (const int64_t size : tensor.shape) elements *= size;
      tensor.data.assign(static_cast<size_t>(elements) * sizeof(float), '\0');
    }
  });
}

void Resize(const Checkpoint& checkpoint, const Sizes& sizes, encoder::TinyModel& model) {
  model.EditJson("config.json",
                 [&](nlohmann::json& config) { EditConfig(checkpoint, sizes, config); });
  if (checkpoint.directory == std::string("tiny_bert")) {
    model.EditJson("1_Pooling/config.json", [&](nlohmann::json& config) {
      config["word_embedding_dimension"] = sizes.hidden();
    });
  }
  ResizeWeights(checkpoint.resized(sizes), model, [&](const std::string& name, int64_t& rows) {
    if (name.ends_with("attn.Wqkv.weight")) rows = 3 * sizes.hidden();
    if (name.ends_with("mlp.Wi.weight")) rows = 2 * sizes.intermediate;
  });
}

// A small BERT with a head, of which the words are many and the rows wide.
void ResizeHead(int64_t hidden, int64_t words, encoder::TinyModel& model) {
  int64_t vocabulary = 0;
  model.EditJson("config.json", [&](nlohmann::json& config) {
    vocabulary = config["vocab_size"];
    config["hidden_size"] = hidden;
    config["vocab_size"] = words;
    config["max_position_embeddings"] = kPositions;
  });
  ResizeWeights({{16, hidden}, {vocabulary, words}, {32, kPositions}}, model);
}

// As many rows as spans may cover, in few spans or in many.
void MeasuredMemoryTest::AddSpans(Encoding* one) {
  const auto count = static_cast<size_t>(Toss() ? UpTo(70) : UpTo(5000));
  const int32_t tokens = one->offsets.back();
  int64_t rows = encoder::kMostSpanRows * (tokens + static_cast<int64_t>(count));
  one->request.spans.ranges.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const auto end = static_cast<int32_t>(std::min<int64_t>(rows, tokens));
    const auto begin = static_cast<int32_t>(Toss() ? 0 : Uniform(0, end));
    one->spans.push_back(begin == end ? encoder::RowRange{} : encoder::RowRange{begin, end});
    rows -= end - begin;
  }
}

void MeasuredMemoryTest::CheckEncoder(const LoadedModel& model, bool heads, Rows rows) {
  Kernel kernel = model.info.kernel;
  if (Uniform(0, 2) == 0) kernel = attention::PlainClusters(UpTo(100), random_());
  if (Uniform(0, 2) == 0) kernel = attention::ImprovedClusters(UpTo(100), UpTo(32), random_());
  if (std::ranges::count(model.info.kernels, NameOf(kernel)) == 0) kernel = model.info.kernel;
  encoder::Batch batch{.model = model.encoder, .kernel = kernel, .items = {}};
  std::vector<Encoding> encodings(static_cast<size_t>(rows == Rows::kMany ? 1 : UpTo(3)));
  MemoryNeed memory;
  int64_t tokens = 0;
  for (Encoding& one : encodings) {
    one.offsets = attention::OffsetsOf(Lengths(rows));
    one.ids.assign(static_cast<size_t>(one.offsets.back()), 7);
    const std::vector<EncodeOutput>& outputs = model.info.outputs;
    EncodeOutput output = outputs[Uniform(0, std::ssize(outputs) - 1)];
    const bool late_interaction = outputs.front() == EncodeOutput::kTokenEmbeddings;
    if (late_interaction && Toss()) output = EncodeOutput::kMaxSim;
    one.request.output = output;
    if (output == EncodeOutput::kPooled && Toss()) AddSpans(&one);
    encoder::BatchItem item;
    item.cu_seqlens = one.offsets;
    item.ids = one.ids;
    item.task = static_cast<int32_t>(one.offsets.size() % (model.info.tasks.size() + 1)) - 1;
    item.spans = one.spans;
    item.output_kind = output;
    item.token_labels = model.info.token_labels;
    item.pooling = kAllPoolings[Uniform(0, std::ssize(kAllPoolings) - 1)];
    item.normalize = Toss();
    item.dimensions = encoder::WidthOf(model.info, output);
    if (encoder::HasVectors(output) && Toss()) item.dimensions = Uniform(1, item.dimensions);
    one.output.resize(static_cast<size_t>(item.output_rows() * item.dimensions));
    item.output = one.output.data();
    batch.items.push_back(item);
    memory = memory + forecast_->Of(model, kernel, one.request, one.offsets);
    tokens += one.offsets.back();
  }
  const int64_t peak = PeakOf(batch);
  SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::string(NameOf(NameOf(kernel))));
  EXPECT_LE(peak, memory.bytes());
  // What spans may cover is bounded by far more than these do.
  const bool spans = std::any_of(encodings.begin(), encodings.end(),
                                 [](const Encoding& one) { return !one.spans.empty(); });
  if (heads || spans || tokens < 4096 || !std::holds_alternative<Vanilla>(kernel)) return;
  // What is shared is a constant of the model, and what attention packs of each request at most one
  // of the machine: only large models use them in full.
  EXPECT_LE(memory.activations, peak * 3 / 2) << "far too much";
}

TEST_F(MeasuredMemoryTest, OfEncodersIsAtMostWhatWasPredicted) {
  for (const Checkpoint& checkpoint : kCheckpoints) {
    if (HasFailure()) return;
    const Sizes sizes{.heads = UpTo(8),
                      .head_dim = 8 * Uniform(1, 8),
                      .intermediate = Uniform(100, 2500),
                      .activation = Toss()   ? "gelu"
                                    : Toss() ? "quick_gelu"
                                             : "gelu_new",
                      .window = Uniform(0, 200)};
    encoder::TinyModel files(checkpoint.directory);
    Resize(checkpoint, sizes, files);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const auto model =
          LoadModel(*device_, {.name = "", .directory = files.directory(), .dtype = dtype});
      ASSERT_TRUE(model.ok()) << model.status();
      SCOPED_TRACE(std::string(checkpoint.directory) + ", " + std::string(NameOf(dtype)) +
                   ", hidden " + std::to_string(sizes.hidden()) + ", wide " +
                   std::to_string(sizes.intermediate) + ", " + sizes.activation);
      for (int run = 0; run < Rounds(6); ++run) CheckEncoder(*model);
    }
  }
}

// Queries, keys and values of 12,000 rows of 576 and more are 83 MB, more than are there together.
TEST_F(MeasuredMemoryTest, OfManyRowsIsAtMostWhatWasPredicted) {
  for (const Checkpoint& checkpoint : {kCheckpoints[0], kCheckpoints[1]}) {
    const Sizes sizes{.heads = 9,
                      .head_dim = 8 * Uniform(8, 10),
                      .intermediate = Uniform(100, 300),
                      .activation = "gelu",
                      .window = Uniform(0, 100)};
    encoder::TinyModel files(checkpoint.directory);
    Resize(checkpoint, sizes, files);
    const auto model =
        LoadModel(*device_, {.name = "", .directory = files.directory(), .dtype = DType::kFloat32});
    ASSERT_TRUE(model.ok()) << model.status();
    SCOPED_TRACE(std::string(checkpoint.directory) + ", hidden " + std::to_string(sizes.hidden()));
    CheckEncoder(*model, /*heads=*/false, Rows::kMany);
  }
}

TEST_F(MeasuredMemoryTest, OfHeadsIsAtMostWhatWasPredicted) {
  for (const char* name : {"bert_sequences", "bert_tokens", "splade_bert", "splade_modernbert",
                           "colbert_stanford", "dense", "static"}) {
    encoder::TinyModel files("heads/" + std::string(name));
    const std::string head = name;
    const int64_t words = head == "splade_bert" ? Uniform(2000, 8000) : Uniform(300, 400);
    // Dense modules have weights of their own. Positions of ModernBERT have no table.
    const int64_t hidden = head == "dense" ? 16 : 16 * UpTo(6);
    if (head != "splade_modernbert" && head != "static") ResizeHead(hidden, words, files);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const auto model =
          LoadModel(*device_, {.name = "", .directory = files.directory(), .dtype = dtype});
      ASSERT_TRUE(model.ok()) << model.status();
      SCOPED_TRACE(std::string(NameOf(dtype)) + ", " + name + ", " + std::to_string(words) +
                   " words, hidden " + std::to_string(model->info.hidden_size));
      for (int run = 0; run < 4; ++run) CheckEncoder(*model, /*heads=*/true);
    }
  }
}

}  // namespace
}  // namespace castor
