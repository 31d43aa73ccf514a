// The castor command against a real castor-server: what it prints and the exit codes it ends with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/npy.h"
#include "client/tensor.h"
#include "tests/integration/client/cli_fixture.h"

namespace castor::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliTest, HealthSaysServing) {
  EXPECT_EQ(OutputOf({"health"}), "SERVING\n");
  EXPECT_EQ(OutputOf({"health", "readiness"}), "SERVING\n");
  EXPECT_EQ(json::parse(OutputOf({"health", "-o", "json"}))["status"], "SERVING");
  EXPECT_THAT(ErrorOf(1, {"health", "no.such.Service"}), HasSubstr("NOT_FOUND"));
}

TEST_F(CliTest, HealthWaitsNoLongerThanItIsTold) {
  EXPECT_EQ(OutputOf({"health", "--wait", "30s"}), "SERVING\n");
  const Outcome none = Run({"health", "--wait", "300ms"}, "", "127.0.0.1:1");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("Connection refused"));
  EXPECT_THAT(ErrorOf(1, {"health", "no.such.Service", "--wait", "1h"}), HasSubstr("NOT_FOUND"));
}

TEST_F(CliTest, InfoShowsDeviceKernelsAndLimits) {
  const std::string table = OutputOf({"info"});
  EXPECT_THAT(table, HasSubstr("vanilla: FLOAT32, FLOAT16, BFLOAT16"));
  EXPECT_THAT(table, HasSubstr("8.0 MiB at most"));
  EXPECT_THAT(table, HasSubstr("device memory"));
  const json info = json::parse(OutputOf({"info", "--output", "json"}));
  EXPECT_EQ(info["devices"][0]["name"], "cpu");
  EXPECT_EQ(info["limits"]["max_message_bytes"], "8388608");
}

TEST_F(CliTest, RandomRaggedProblemsAreCheckedInEveryType) {
  for (const char* dtype : {"float32", "float16", "bfloat16"}) {
    const json answer =
        json::parse(OutputOf({"attend", "--lengths", "7,128,33", "--heads", "3", "--head-dim", "20",
                              "--value-dim", "12", "--dtype", dtype, "--output", "json"}));
    EXPECT_TRUE(answer["check"]["passed"].get<bool>()) << dtype;
    EXPECT_EQ(answer["check"]["rows_checked"], 3 * (7 + 128 + 33));
    EXPECT_EQ(answer["output"]["shape"], json({168, 3, 12}));
    EXPECT_EQ(answer["kernel"]["name"], "VANILLA");
  }
  EXPECT_THAT(OutputOf({"attend", "--lengths", "40,9", "--kernel", "vanilla,causal=true"}),
              HasSubstr("check        passed"));
  EXPECT_THAT(OutputOf({"attend", "--lengths", "5,60", "--key-lengths", "80,1", "--scale", "0.3"}),
              HasSubstr("passed"));
}

TEST_F(CliTest, EveryKernelAnswersARandomProblem) {
  const auto attend = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"attend", "--lengths", "90,1,200", "-o", "json", "--kernel"});
    return json::parse(OutputOf(flags));
  };
  // With a cluster for every query nothing is approximate.
  const struct {
    std::vector<std::string> flags;
    const char* name;
    bool checked;
  } kCases[] = {
      {{"clustered,clusters=20"}, "CLUSTERED", true},
      {{"improved-clustered,clusters=200", "--tolerance", "1e-4"}, "IMPROVED_CLUSTERED", true},
      {{"cast,cluster-size=60,head-clustering=per-head", "--surrogate-tokens", "4"}, "CAST", false},
      {{"automatic"}, "VANILLA", true}};
  for (const auto& it : kCases) {
    const json answer = attend(it.flags);
    EXPECT_EQ(answer["kernel"]["name"], it.name);
    EXPECT_EQ(answer.contains("check"), it.checked) << it.name;
    if (it.checked) {
      EXPECT_TRUE(answer["check"]["passed"].get<bool>()) << it.name;
    }
  }
  const json clustered = attend({"clustered,clusters=20"});
  EXPECT_EQ(clustered["kernel"]["clustered"]["clusters"], 20);
  EXPECT_GT(clustered["check"]["relative_error"], 0.01) << "reported, not judged";
  EXPECT_THAT(ErrorOf(1, {"attend", "--lengths", "4", "--kernel",
                          "clustered,bits=63,clustering=query-space"}),
              HasSubstr("clustered.bits"));
}

TEST_F(CliTest, TheAutomaticChoiceIsShownWithItsFigures) {
  const json exact = json::parse(
      OutputOf({"attend", "--lengths", "300", "--kernel", "automatic", "--output", "json"}));
  EXPECT_EQ(exact["kernel"]["name"], "VANILLA");
  EXPECT_LT(exact["check"]["relative_error"].get<double>(), 1e-5);
  // Without vanilla an approximation must answer; on Gaussian inputs it is far off and reports it.
  const std::string table = OutputOf({"attend", "--lengths", "300", "--kernel",
                                      "automatic,max-relative-error=0.001,allowed=clustered"});
  EXPECT_THAT(table, AllOf(HasSubstr("clustered (clusters="), HasSubstr(",iterations=10,")));
  EXPECT_THAT(table, HasSubstr("predicted"));
  EXPECT_THAT(table, HasSubstr("over 32 rows per sequence"));
  const json asked =
      json::parse(OutputOf({"attend", "--lengths", "300", "--kernel", "improved-clustered",
                            "--fidelity-rows", "300", "--output", "json"}));
  EXPECT_EQ(asked["fidelity"]["rows"], 300);
  // The client's own check covers every row too.
  EXPECT_NEAR(asked["fidelity"]["relative_error"].get<double>(),
              asked["check"]["relative_error"].get<double>(), 1e-4);
}

TEST_F(CliTest, FieldsReachTheServer) {
  const auto attend = [](const std::string& fields) {
    return std::vector<std::string>{"attend", "--lengths", "30",  "--heads",
                                    "2",      "--fields",  fields};
  };
  EXPECT_THAT(
      OutputOf(attend(R"({"positions": {"window": {"left": 5}}, "returnLogSumExp": true})")),
      AllOf(HasSubstr("log_sum_exp  [30, 2] FLOAT32"), Not(HasSubstr("check"))));
  EXPECT_THAT(ErrorOf(1, attend(R"({"positions": {"alibiSlopes": [1]}})")),
              HasSubstr("positions.alibi_slopes: has 1 entries for 2 heads"));
  EXPECT_THAT(ErrorOf(2, attend("{\"soft\": 1}")), HasSubstr("--fields: "));
}

TEST_F(CliTest, HeadsMayShareKeys) {
  for (const char* kernel : {"vanilla,causal=true", "improved-clustered,clusters=200"}) {
    EXPECT_THAT(OutputOf({"attend", "--lengths", "90,1", "--heads", "6", "--kv-heads", "2",
                          "--tolerance", "1e-4", "--kernel", kernel}),
                AllOf(HasSubstr("key [91, 2, 64]"), HasSubstr("passed")));
  }
  EXPECT_THAT(ErrorOf(1, {"attend", "--lengths", "4", "--heads", "8", "--kv-heads", "3"}),
              HasSubstr("key.shape[1]"));
}

TEST_F(CliTest, AWrongAnswerEndsWithExitCode3) {
  // No fp16 answer is this exact, so the check must fail.
  const std::string error =
      ErrorOf(3, {"attend", "--lengths", "64", "--dtype", "float16", "--tolerance", "1e-9"});
  EXPECT_THAT(error, HasSubstr("check FAILED: relative error"));
}

TEST_F(CliTest, FilesGoInAndOut) {
  // Two sequences. The second has one key, so its answer is exactly that key's value.
  const std::vector<float> query = {1, 2, 3, 4, 5, 6};
  const std::vector<float> key = {1, 0, 0, 1, 7, 7};
  const std::vector<float> value = {10, 20, 30};
  ASSERT_TRUE(client::WriteNpy(InFolder("q.npy"), client::MakeTensor(query, {3, 1, 2})).ok());
  ASSERT_TRUE(client::WriteNpy(InFolder("k.npy"), client::MakeTensor(key, {3, 1, 2})).ok());
  ASSERT_TRUE(client::WriteNpy(InFolder("v.npy"), client::MakeTensor(value, {3, 1, 1})).ok());
  OutputOf({"attend", "--query", InFolder("q.npy"), "--key", InFolder("k.npy"), "--value",
            InFolder("v.npy"), "--lengths", "2,1", "--output", "npy", "--file", InFolder("o.npy")});
  const auto output = client::ReadNpy(InFolder("o.npy"));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(client::ShapeString(*output), "[3, 1, 1]");
  const auto values = client::ToFloats(*output);
  ASSERT_TRUE(values.has_value());
  // Row 0: scores 1/sqrt(2) and 2/sqrt(2).
  const double weight = 1 / (1 + std::exp(-1 / std::sqrt(2.0)));
  EXPECT_NEAR((*values)[0], 10 * (1 - weight) + 20 * weight, 1e-4);
  EXPECT_EQ((*values)[2], 30);
}

TEST_F(CliTest, RefusalsNameTheFieldAndUsageErrorsTheFlag) {
  EXPECT_THAT(ErrorOf(1, {"attend", "--lengths", "4", "--key-lengths", "4,4"}),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("key_lengths")));
  EXPECT_THAT(ErrorOf(1, {"attend", "--lengths", "4", "--kernel", "cast,layer=no/0"}),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("no/0")));
  EXPECT_THAT(ErrorOf(1, {"attend", "--lengths", "6000", "--no-check"}),
              HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(ErrorOf(1, {"attend", "--lengths", "4", "--kernel", "automatic,allowed=clustered"}),
              HasSubstr("automatic.allowed"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--lengths", "0"}), HasSubstr("--lengths"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--query", "q.npy"}),
              AnyOf(HasSubstr("--key"), HasSubstr("--value")));
  EXPECT_THAT(ErrorOf(2, {"attend", "--output", "npy"}), HasSubstr("--file"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--output", "xml"}), HasSubstr("xml"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--kernel", "clustered,causal=true"}), HasSubstr("causal"));
  EXPECT_THAT(ErrorOf(2, {"encode", "--ids", "1 two"}), HasSubstr("1 two"));
  EXPECT_THAT(ErrorOf(2, {"encode"}, ""), HasSubstr("standard input"));
}

TEST_F(CliTest, AMissedDeadlineNamesBothLimits) {
  EXPECT_THAT(
      ErrorOf(1, {"attend", "--lengths", "4000", "--no-check", "--timeout", "0.001"}),
      AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("--timeout"), HasSubstr("--max-deadline")));
}

class CliEncodeTest : public CliTest {
 protected:
  void SetUp() override {
    if (!HaveModel()) GTEST_SKIP() << "no model at " CASTOR_TEST_MODEL;
  }
};

TEST_F(CliEncodeTest, RowsAreComparedByTheirCosine) {
  EXPECT_THAT(OutputOf({"encode", "A cat sleeps.", "A cat sleeps."}),
              AllOf(HasSubstr("COSINE WITH"), HasSubstr("1.000  1.000")));
}

TEST_F(CliEncodeTest, TextsComeFromArgumentsStandardInputAndFilesAlike) {
  WriteFile(InFolder("texts"), "first text\r\nsecond\n");
  const std::string npy = InFolder("e.npy");
  std::vector<std::string> outputs;
  OutputOf({"encode", "first text", "second", "-o", "npy", "-f", npy});
  outputs.push_back(ReadFile(npy));
  OutputOf({"encode", "-o", "npy", "-f", npy}, "first text\nsecond\n");
  outputs.push_back(ReadFile(npy));
  OutputOf({"encode", "--text-file", InFolder("texts"), "-o", "npy", "-f", npy});
  outputs.push_back(ReadFile(npy));
  EXPECT_EQ(outputs[0].size(), 128u + 2 * 384 * 4);
  EXPECT_EQ(outputs[1], outputs[0]);
  EXPECT_EQ(outputs[2], outputs[0]);
}

TEST_F(CliEncodeTest, ManyTextsTravelInSeveralRequests) {
  std::string input;
  for (int i = 0; i < 25; ++i) input += "text number " + std::to_string(i) + "\n";
  const json answer = json::parse(OutputOf({"encode", "--batch", "10", "-o", "json"}, input));
  EXPECT_EQ(answer["shape"], json({25, 384}));
  EXPECT_EQ(answer["sequences"][24]["input"], "text number 24");
  EXPECT_EQ(answer["sequences"].size(), 25u);
  const std::string npy = InFolder("many.npy");
  OutputOf({"encode", "--batch", "1", "-f", npy}, input);
  const auto rows = client::ReadNpy(npy);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->raw().size(), 25u * 384 * sizeof(float));
  float last;
  std::memcpy(&last, rows->raw().data() + rows->raw().size() - sizeof(last), sizeof(last));
  EXPECT_NEAR(last, answer["sequences"][24]["rows"][0][383].get<double>(), 1e-4);
  EXPECT_THAT(OutputOf({"encode", "--batch", "1"}, input), HasSubstr("25, the last one below"));
  EXPECT_THAT(ErrorOf(2, {"encode", "--batch", "1"}, input + "\xff\n"), HasSubstr("line 26"));
}

TEST_F(CliEncodeTest, TokenIdsPairsAndTokenRows) {
  const json ids =
      json::parse(OutputOf({"encode", "--ids", "101 2023 102", "--ids", "101,102", "-o", "json"}));
  EXPECT_EQ(ids["shape"], json({2, 384}));
  EXPECT_EQ(ids["sequences"][0]["tokens"], 3);
  const json pair =
      json::parse(OutputOf({"encode", "who?", "--pair", "she", "-o", "json", "--output-kind",
                            "token-embeddings", "--dimensions", "4"}));
  ASSERT_EQ(pair["sequences"].size(), 1u);
  EXPECT_EQ(pair["sequences"][0]["rows"].size(), 6u) << "[CLS] who ? [SEP] she [SEP]";
  EXPECT_EQ(pair["sequences"][0]["rows"][0].size(), 4u);
}

TEST_F(CliEncodeTest, TextsBecomeTokensAndTokensTexts) {
  EXPECT_THAT(OutputOf({"tokenize", "Who?"}),
              AllOf(HasSubstr("who"), HasSubstr("0:3"), HasSubstr("3:4"), HasSubstr("special")));
  const json tokens = json::parse(OutputOf({"tokenize", "Who?", "-o", "json"}));
  EXPECT_EQ(tokens["tokens"], json({"[CLS]", "who", "?", "[SEP]"}));
  EXPECT_EQ(OutputOf({"tokenize", "--decode", "101,2040,1029,102"}), "[CLS] who? [SEP]\n");
  EXPECT_EQ(OutputOf({"tokenize", "--decode", "101,2040", "--no-special-tokens"}), "who\n");
  EXPECT_THAT(ErrorOf(1, {"tokenize", "--decode", "101,99999"}), HasSubstr("tokens.ids[1]"));
}

TEST_F(CliEncodeTest, TruncationIsReportedInEveryFormat) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "a line of words\n";
  WriteFile(InFolder("long"), text);
  for (const char* name : {"c.txt", "c.json", "c.npy"}) {
    const Outcome outcome = Run({"encode", "--document", InFolder("long"), "-f", InFolder(name)});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("warning: 1 of 1 inputs and 2"),
                      HasSubstr(" of 300 spans were truncated"), HasSubstr("--no-truncate")))
        << name;
  }
  EXPECT_THAT(ErrorOf(1, {"encode", "--document", InFolder("long"), "--no-truncate"}),
              HasSubstr("texts.texts[0]"));
  EXPECT_THAT(Run({"encode", "short"}, "").err, "");
  std::replace(text.begin(), text.end(), '\n', ' ');
  EXPECT_THAT(Run({"encode"}, text + "\nshort").err, HasSubstr("1 of 2 inputs were truncated"));
  // The text exceeds the server's limit.
  EXPECT_THAT(ErrorOf(1, {"encode"}, std::string(5'000'000, 'x')), HasSubstr("--max-text-bytes"));
}

TEST_F(CliEncodeTest, SpansAndTheLinesOfADocumentArePooledByThemselves) {
  const std::string text = "A caf\u00e9 opens.\n\nIt \U0001f408 sells tea.\n";
  WriteFile(InFolder("document"), text);
  const json document =
      json::parse(OutputOf({"encode", "--document", InFolder("document"), "-o", "json"}));
  const json& sequence = document["sequences"][0];
  EXPECT_EQ(sequence["spans"][1]["input"], "It \U0001f408 sells tea.");
  EXPECT_EQ(sequence["spans"][0]["end"], sequence["spans"][1]["begin"]);
  // The same spans in characters and in bytes.
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--spans", "0:13,15:30"},
        {"--spans", "0:14,16:34", "--span-unit", "bytes"}}) {
    std::vector<std::string> arguments = {"encode", text, "-o", "json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const json rows = json::parse(OutputOf(arguments))["sequences"][0]["rows"];
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_NEAR(rows[1][0].get<double>(), sequence["rows"][1][0].get<double>(), 1e-4);
  }
  EXPECT_THAT(OutputOf({"encode", "--document", "-"}, text), HasSubstr("one row per span"));

  EXPECT_THAT(ErrorOf(1, {"encode", "a cat", "--spans", "0:6"}), HasSubstr("spans.ranges[0].end"));
  EXPECT_THAT(ErrorOf(2, {"encode", "a cat", "--spans", "0-5"}), HasSubstr("BEGIN:END"));
  EXPECT_THAT(ErrorOf(2, {"encode", "--document", "-"}, " \n\n"), HasSubstr("no text"));
  ErrorOf(1, {"encode", "a cat", "--spans", "0:5", "--output-kind", "token-embeddings"});
  EXPECT_THAT(ErrorOf(1, {"encode", "a cat", "--prompt", "summary"}), HasSubstr("has none"));
  OutputOf({"encode", "a cat", "--no-prompt"});
  const json prompted =
      json::parse(OutputOf({"encode", "cat", "--prompt-text", "the ", "-o", "json"}));
  EXPECT_EQ(prompted["sequences"][0]["tokens"], 4);
}

TEST_F(CliEncodeTest, ModelsAreListedAndUnknownOnesNotFound) {
  EXPECT_THAT(OutputOf({"models"}), HasSubstr("minilm  bert"));
  EXPECT_EQ(json::parse(OutputOf({"models", "minilm", "-o", "json"}))[0]["hidden_size"], "384");
  EXPECT_THAT(ErrorOf(1, {"models", "other"}), HasSubstr("castor models"));
  EXPECT_THAT(ErrorOf(1, {"encode", "x", "--model", "other"}), HasSubstr("NOT_FOUND"));
}

}  // namespace
}  // namespace castor::cli
