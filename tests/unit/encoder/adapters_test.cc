// Adapters by task: PEFT's folders beside a model, and models laid out like jina-embeddings-v3 and
// -v5 (tests/golden/encoder/make_adapters.py). Rows within 2e-5, requests of all tasks in one
// batch; the same bytes alone; refusals by file and key.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/run_control.h"
#include "engine/encoder/directory/load.h"
#include "engine/encoder/layers/linear.h"
#include "engine/encoder/network/network.h"
#include "engine/encoder/text/output_types.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/encoder/model_files.h"

namespace castor::encoder {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Adapters = std::vector<std::pair<std::string, std::string>>;

absl::StatusOr<std::shared_ptr<Model>> LoadWith(const std::string& directory,
                                                const Adapters& adapters,
                                                DType dtype = DType::kFloat32, bool int8 = false) {
  return LoadModel(
      {.name = "test", .directory = directory, .dtype = dtype, .int8 = int8, .adapters = adapters},
      at::Device(at::kCPU), RunOnCpu);
}

std::string ErrorWith(const std::string& directory, const Adapters& adapters) {
  const auto model = LoadWith(directory, adapters);
  return model.ok() ? "" : std::string(model.status().message());
}

struct Case {
  EncodeRequest request;
  std::string text;  // which the request views
  Prepared prepared;
  std::vector<float> expected;
};

class AdaptersTest : public testing::TestWithParam<std::string> {
 protected:
  AdaptersTest()
      : folder_(GoldenDirectory() + "/adapters/" + GetParam()),
        golden_(json::parse(ReadFile(folder_ + "/expected.json"))) {}

  // The model, with the cases' tokens.
  void Read(DType dtype = DType::kFloat32, bool int8 = false) {
    Adapters adapters;
    for (const std::string task : golden_.value("adapters", json::array())) {
      adapters.emplace_back(task, folder_ + "/" + task);
    }
    const std::string base = golden_.contains("base")
                                 ? GoldenDirectory() + "/" + golden_["base"].get<std::string>()
                                 : folder_;
    auto model = LoadWith(base, adapters, dtype, int8);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    cases_.clear();
    for (const json& expected : golden_["cases"]) {
      Case& one = *cases_.emplace_back(std::make_unique<Case>());
      one.request.task = expected["task"];
      const std::vector<int64_t> ids = expected["ids"];
      const char* const key = expected.contains("rows") ? "rows" : "pooled";
      one.request.output =
          expected.contains("rows") ? EncodeOutput::kTokenEmbeddings : EncodeOutput::kPooled;
      if (expected.contains("text")) {
        one.text = expected["text"];
        one.request.input = TextInput{{one.text}, {}, false};
      } else {
        one.request.input = TokenInput{.ids = ids, .type_ids = {}, .lengths = {}};
      }
      ASSERT_TRUE(model_->CheckInput(one.request, 8, 1 << 20).ok());
      auto prepared = Prepare(one.request, *model_);
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      one.prepared = *std::move(prepared);
      EXPECT_EQ(one.prepared.ids, ids) << one.text << " " << one.request.task;
      for (const json& row : expected[key]) {
        one.expected.insert(one.expected.end(), row.begin(), row.end());
      }
    }
    ASSERT_GE(cases_.size(), 6U);
  }

  // The rows of these cases in one batch.
  std::vector<std::vector<float>> Run(const std::vector<size_t>& of) {
    std::vector<std::vector<float>> rows;
    rows.reserve(of.size());
    Batch batch{.model = model_, .kernel = Vanilla{}, .items = {}};
    const ModelInfo& info = model_->info();
    for (const size_t index : of) {
      const Case& one = *cases_[index];
      BatchItem item{.cu_seqlens = one.prepared.cu_seqlens,
                     .ids = one.prepared.ids,
                     .type_ids = one.prepared.type_ids};
      const auto task = std::find(info.tasks.begin(), info.tasks.end(), one.request.task);
      if (task != info.tasks.end()) item.task = static_cast<int32_t>(task - info.tasks.begin());
      item.output_kind = *one.request.output;
      item.pooling = info.pooling;
      item.normalize = info.normalize;
      item.dimensions = WidthOf(info, item.output_kind);
      item.output = rows.emplace_back(one.expected.size(), NAN).data();
      batch.items.push_back(item);
    }
    const absl::Status status = RunOnHost(batch, RunToEnd());
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }

  // The greatest difference of all cases, in one batch.
  double Difference() {
    std::vector<size_t> all;
    for (size_t i = 0; i < cases_.size(); ++i) all.push_back(i);
    const auto rows = Run(all);
    double worst = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t e = 0; e < rows[i].size(); ++e) {
        const double difference = std::abs(double{rows[i][e]} - cases_[i]->expected[e]);
        worst = difference <= worst ? worst : difference;  // NaN is worst
      }
    }
    return worst;
  }

  const std::string folder_;
  const json golden_;
  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Case>> cases_;
};

TEST_P(AdaptersTest, OfAllTasksInOneBatchAreTheLibrarys) {
  Read();
  const double worst = Difference();
  std::cout << GetParam() << ": differs by at most " << worst << "\n";
  EXPECT_LE(worst, 2e-5);
  Read(DType::kBFloat16);
  EXPECT_LE(Difference(), 0.25);
  EXPECT_GT(Difference(), 1e-4);
}

TEST_P(AdaptersTest, GiveTheSameBytesAloneAndInAnyBatch) {
  // LibTorch's products depend on the number of rows.
  if (!Linear::HasInt8(at::Device(at::kCPU))) GTEST_SKIP() << "needs AVX2";
  for (const auto& [dtype, int8] :
       {std::pair{DType::kFloat32, false}, {DType::kBFloat16, false}, {DType::kFloat32, true}}) {
    Read(dtype, int8);
    std::vector<size_t> back;
    for (size_t i = cases_.size(); i-- > 0;) back.push_back(i);
    const auto together = Run(back);
    for (size_t i = 0; i < back.size(); ++i) {
      const auto alone = Run({back[i]});
      EXPECT_EQ(std::memcmp(alone[0].data(), together[i].data(), alone[0].size() * sizeof(float)),
                0)
          << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdaptersTest,
                         testing::Values("bert", "modernbert", "qwen3", "jina_v3", "jina_v5_nano",
                                         "jina_v5_small"));

TEST(AdaptersTest, OfJinaV3BringTheirPrompts) {
  const std::string folder = GoldenDirectory() + "/adapters/jina_v3";
  const auto model = LoadOnCpu(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->info().tasks,
              ElementsAre("retrieval.query", "retrieval.passage", "text-matching"));
  const auto tokens = [&](const std::shared_ptr<Model>& of, const std::string& task,
                          std::optional<std::string> prompt_name) {
    EncodeRequest request;
    request.task = task;
    request.prompt_name = std::move(prompt_name);
    request.input = TextInput{{"the mill"}, {}, false};
    return Prepare(request, *of)->ids;
  };
  const auto plain = tokens(*model, "", {});
  EXPECT_NE(tokens(*model, "retrieval.query", {}), plain);
  EXPECT_EQ(tokens(*model, "retrieval.query", ""), plain);
  EXPECT_EQ(tokens(*model, "retrieval.query", "retrieval.passage"),
            tokens(*model, "retrieval.passage", {}));
  EXPECT_EQ(tokens(*model, "text-matching", {}), plain);
  // Its own code reads them from config.json.
  TinyModel files("adapters/jina_v3");
  std::filesystem::remove(files / "modules.json");
  const auto bare = files.Load();
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(tokens(*bare, "retrieval.query", {}), tokens(*model, "retrieval.query", {}));
}

TEST(AdaptersTest, OfJinaAreRefusedByName) {
  const auto error_of = [](const std::string& name, const std::function<void(TinyModel&)>& edit) {
    TinyModel files("adapters/" + name);
    edit(files);
    return ErrorOf(files);
  };
  const auto config = [](const std::string& key, const json& value) {
    return [=](TinyModel& files) {
      files.EditJson("config.json", [&](json& it) { it[key] = value; });
    };
  };
  EXPECT_THAT(error_of("jina_v3", config("lora_rank", 3)),
              HasSubstr("lora_A: shape is [361, 2], "));
  EXPECT_THAT(error_of("jina_v3", config("lora_adaptations", {"a", "b"})),
              HasSubstr("not a matrix for each of 2 tasks"));
  EXPECT_THAT(error_of("jina_v3", config("lora_adaptations", {"a", "b", "a"})),
              HasSubstr("\"a\" is there twice"));
  EXPECT_THAT(error_of("jina_v3", config("lora_adaptations", {"a", "b", "../c"})),
              HasSubstr("\"../c\" does not name a task"));
  EXPECT_THAT(error_of("jina_v3", config("position_embedding_type", "absolute")),
              HasSubstr("config.json: position_embedding_type"));
  EXPECT_THAT(error_of("jina_v3", config("lora_adaptations", nullptr)), HasSubstr("custom code"));
  EXPECT_THAT(error_of("jina_v3",
                       [](TinyModel& files) {
                         files.EditWeights([](auto& tensors) {
                           auto part = tensors.extract(
                               "roberta.encoder.layers.0.mlp.fc1.parametrizations.weight.0.lora_B");
                           ASSERT_FALSE(part.empty());
                         });
                       }),
              HasSubstr("has no lora_B"));
  EXPECT_THAT(error_of("jina_v5_nano", config("task_names", {"retrieval", "clustering"})),
              HasSubstr("adapters/clustering/adapter_config.json"));
  EXPECT_THAT(error_of("jina_v5_nano", config("task_names", {"../x"})),
              HasSubstr("\"../x\" does not name a task"));
  EXPECT_THAT(error_of("jina_v5_nano", config("task_names", nullptr)),
              HasSubstr("task_names: names no task"));
}

// A copy of the adapter "some" of bert, edited.
class PeftFolderTest : public testing::Test {
 protected:
  std::string Error(const std::string& base = "directories/bert-embed") {
    return ErrorWith(GoldenDirectory() + "/" + base, {{"some", files_ / "some"}});
  }
  std::string WithKey(const std::string& key, const json& value) {
    TinyModel fresh("adapters/bert");
    fresh.EditJson("some/adapter_config.json", [&](json& it) { it[key] = value; });
    return ErrorWith(GoldenDirectory() + "/directories/bert-embed", {{"some", fresh / "some"}});
  }

  TinyModel files_{"adapters/bert"};
};

TEST_F(PeftFolderTest, IsRefusedByKey) {
  EXPECT_EQ(Error(), "");
  for (const auto& [key, value] : std::initializer_list<std::pair<std::string, json>>{
           {"use_dora", true},
           {"modules_to_save", {"classifier"}},
           {"trainable_token_indices", {1, 2}},
           {"alora_invocation_tokens", {7}},
           {"layer_replication", {{0, 1}}},
           {"megatron_config", {{"a", 1}}},
           {"fan_in_fan_out", true},
           {"bias", "lora_only"},
           {"lora_bias", true},
           {"use_qalora", true},
           {"target_parameters", {"x"}},
           {"init_lora_weights", "pissa"},
           {"peft_type", "IA3"},
           {"invented", 1},
           {"r", 4},
           {"r", -1},
           {"lora_alpha", "x"},
           {"rank_pattern", {{"query", 5}}},
           {"rank_pattern", {{"(query|key)", 3}}},
           {"alpha_pattern", {{"query", 0}}},
           {"alpha_pattern", {{"query", 1}, {"self.query", 2}}},
           {"use_rslora", "yes"},
           {"target_modules", {"query"}},
       }) {
    const std::string error = WithKey(key, value);
    const bool of_rank = key == "r" || key == "rank_pattern";
    EXPECT_THAT(error, HasSubstr(of_rank ? "" : "adapter_config.json: " + key)) << key << value;
    EXPECT_NE(error, "") << key << value;
  }
  EXPECT_EQ(WithKey("invented", nullptr), "");
  EXPECT_EQ(WithKey("rank_pattern", {{"^encoder.layer.0.output.dense", 2}}), "");
  EXPECT_THAT(WithKey("r", 4), HasSubstr("adapter_config.json implies a rank of 4"));
}

TEST_F(PeftFolderTest, IsRefusedByTensor) {
  const auto edited = [&](const std::function<void(std::map<std::string, RawTensor>&)>& edit) {
    TinyModel fresh("adapters/bert");
    std::filesystem::rename(fresh / "some/adapter_model.safetensors", fresh / "model.safetensors");
    fresh.EditWeights(edit);
    std::filesystem::rename(fresh / "model.safetensors", fresh / "some/adapter_model.safetensors");
    return ErrorWith(GoldenDirectory() + "/directories/bert-embed", {{"some", fresh / "some"}});
  };
  const std::string at = "base_model.model.encoder.layer.0.attention.self.query.";
  EXPECT_EQ(edited([](auto&) {}), "");
  EXPECT_THAT(edited([&](auto& all) { all.erase(at + "lora_B.weight"); }),
              HasSubstr("lora_A.weight: has no lora_B"));
  EXPECT_THAT(edited([&](auto& all) { all.erase(at + "lora_A.weight"); }),
              HasSubstr("lora_B.weight: has no lora_A"));
  EXPECT_THAT(edited([&](auto& all) { all[at + "lora_magnitude_vector"] = all.begin()->second; }),
              HasSubstr("lora_magnitude_vector: is not supported"));
  EXPECT_THAT(
      edited([&](auto& all) { all["base_model.model.classifier.weight"] = all.begin()->second; }),
      HasSubstr("classifier.weight: is not supported"));
  EXPECT_THAT(edited([&](auto& all) {
                all[at + "lora_B.weight"].data.replace(0, 4, "\xff\xff\xff\x7f", 4);
              }),
              HasSubstr("is NaN or Inf"));
  EXPECT_THAT(edited([&](auto& all) { all.clear(); }), HasSubstr("holds no lora_A"));
  // The base has no such layer, or another size.
  const std::string folder = GoldenDirectory() + "/";
  EXPECT_THAT(ErrorWith(folder + "directories/roberta-embed",
                        {{"some", folder + "adapters/modernbert/some"}}),
              HasSubstr("adapts a part of the model that is served without adapters"));
  EXPECT_THAT(ErrorWith(folder + "heads/static", {{"some", folder + "adapters/modernbert/some"}}),
              HasSubstr("has no layers to adapt"));
  EXPECT_THAT(ErrorWith(folder + "directories/deberta-sequences",
                        {{"some", folder + "adapters/bert/some"}}),
              HasSubstr("without adapters"));
}

TEST_F(PeftFolderTest, NeedsItsFiles) {
  EXPECT_THAT(ErrorWith(GoldenDirectory() + "/directories/bert-embed",
                        {{"a", files_ / "some"}, {"a", files_ / "all"}}),
              HasSubstr("\"a\" is there twice"));
  EXPECT_THAT(ErrorWith(GoldenDirectory() + "/directories/bert-embed", {{"a/b", files_ / "some"}}),
              HasSubstr("does not name a task"));
  std::filesystem::rename(files_ / "some/adapter_model.safetensors",
                          files_ / "some/adapter_model.bin");
  EXPECT_THAT(Error(), HasSubstr("adapter_model.bin: is a pickle"));
  std::filesystem::remove(files_ / "some/adapter_model.bin");
  EXPECT_THAT(Error(), HasSubstr("adapter_model.safetensors"));
  std::filesystem::remove(files_ / "some/adapter_config.json");
  EXPECT_THAT(Error(), HasSubstr("adapter_config.json"));
}

}  // namespace
}  // namespace castor::encoder
