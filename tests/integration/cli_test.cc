// The castor command against a real castor-server: what it prints and the exit codes it ends with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/npy.h"
#include "client/tensor.h"
#include "tests/integration/server_process.h"

namespace castor::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::ServerProcess;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// One word of the shell.
std::string Quoted(const std::string& text) {
  std::string quoted(1, '\'');
  for (const char c : text) {
    if (c == '\'') {
      quoted.append("'\\''");
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('\'');
  return quoted;
}

bool HaveModel() { return std::filesystem::exists(CASTOR_TEST_MODEL "/config.json"); }

// One server for all tests of the program.
class CliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::vector<std::string> arguments = {
        "--listen",       "127.0.0.1:0", "--metrics-listen",    "off",
        "--device",       "cpu",         "--max-message-bytes", "8MiB",
        "--shared-memory"};
    if (HaveModel()) arguments.insert(arguments.end(), {"--model", "minilm=" CASTOR_TEST_MODEL});
    server_ = std::make_unique<ServerProcess>(arguments);
    const std::string line = server_->AwaitLine("listening grpc=");
    ASSERT_NE(line, "") << server_->output();
    const size_t begin = line.find("grpc=") + 5;
    address_ = line.substr(begin, line.find_first_of(" \n", begin) - begin);
    std::string pattern = ::testing::TempDir() + "castor-cli-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  static void TearDownTestSuite() {
    if (server_ != nullptr) {
      server_->Signal(SIGTERM);
      EXPECT_EQ(server_->Wait(), 0);
    }
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  // Runs castor; `input` is its standard input.
  static Outcome Run(const std::vector<std::string>& arguments, const std::string& input = "",
                     const std::string& server = address_) {
    std::ofstream(folder_ + "/in", std::ios::binary) << input;
    std::string command("CASTOR_SERVER=");
    command.append(Quoted(server)).append(" ").append(Quoted(CASTOR_PROGRAM));
    for (const std::string& argument : arguments) command.append(" ").append(Quoted(argument));
    command.append(" <").append(Quoted(folder_ + "/in"));
    command.append(" >").append(Quoted(folder_ + "/out"));
    command.append(" 2>").append(Quoted(folder_ + "/err"));
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(folder_ + "/out"),
            ReadFile(folder_ + "/err")};
  }

  // An outcome that must be OK.
  static std::string OutputOf(const std::vector<std::string>& arguments,
                              const std::string& input = "") {
    const Outcome outcome = Run(arguments, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }

  // An outcome that must be an error of one line.
  static std::string ErrorOf(int exit_code, const std::vector<std::string>& arguments,
                             const std::string& input = "") {
    const Outcome outcome = Run(arguments, input);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.out << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  }

  static std::unique_ptr<ServerProcess> server_;
  static std::string address_;
  static std::string folder_;
};

std::unique_ptr<ServerProcess> CliTest::server_;
std::string CliTest::address_;
std::string CliTest::folder_;

TEST_F(CliTest, HealthSaysServing) {
  EXPECT_EQ(OutputOf({"health"}), "SERVING\n");
  EXPECT_EQ(OutputOf({"health", "readiness"}), "SERVING\n");
  EXPECT_EQ(json::parse(OutputOf({"health", "-o", "json"}))["status"], "SERVING");
  EXPECT_THAT(ErrorOf(1, {"health", "no.such.Service"}), HasSubstr("NOT_FOUND"));
}

TEST_F(CliTest, InfoShowsDeviceKernelsAndLimits) {
  const std::string table = OutputOf({"info"});
  EXPECT_THAT(table, HasSubstr("vanilla: FLOAT32, FLOAT16, BFLOAT16"));
  EXPECT_THAT(table, HasSubstr("8.0 MiB at most"));
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
  EXPECT_THAT(OutputOf({"attend", "--lengths", "40,9", "--causal"}),
              HasSubstr("check        passed"));
  EXPECT_THAT(OutputOf({"attend", "--lengths", "5,60", "--key-lengths", "80,1", "--scale", "0.3"}),
              HasSubstr("passed"));
}

TEST_F(CliTest, EveryKernelAnswersARandomProblem) {
  auto attend = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {"attend", "--lengths", "90,1,200", "--heads", "2", "--output", "json"});
    return json::parse(OutputOf(flags));
  };
  json answer = attend({"--kernel", "clustered", "--clusters", "20"});
  EXPECT_EQ(answer["kernel"]["name"], "CLUSTERED");
  EXPECT_EQ(answer["kernel"]["clustered"]["clusters"], 20);
  EXPECT_GT(answer["check"]["relative_error"], 0.01);  // told, not judged

  // With a cluster for every query nothing is approximate, and a tolerance is asked for.
  answer = attend({"--kernel", "improved-clustered", "--clusters", "200", "--tolerance", "1e-4"});
  EXPECT_EQ(answer["kernel"]["name"], "IMPROVED_CLUSTERED");
  EXPECT_TRUE(answer["check"]["passed"].get<bool>());

  answer = attend({"--kernel", "cast", "--surrogate-tokens", "4", "--cluster-size", "60",
                   "--clustering", "single-assignment", "--gate-temperature", "none",
                   "--head-clustering", "per-head", "--attention-function", "laplace"});
  EXPECT_EQ(answer["kernel"]["name"], "CAST");
  EXPECT_EQ(answer["kernel"]["cast"]["head_clustering"], "PER_HEAD");
  EXPECT_FALSE(answer.contains("check"));  // another function than softmax attention
  EXPECT_EQ(attend({"--kernel", "automatic"})["kernel"]["name"], "VANILLA");
}

TEST_F(CliTest, TheAutomaticChoiceIsShownWithItsFigures) {
  const json exact = json::parse(
      OutputOf({"attend", "--lengths", "300", "--kernel", "automatic", "--output", "json"}));
  EXPECT_EQ(exact["kernel"]["name"], "VANILLA");
  EXPECT_LT(exact["check"]["relative_error"].get<double>(), 1e-5);
  // Without vanilla an approximation must answer; on Gaussian inputs it is far off, and says so.
  const std::string table = OutputOf({"attend", "--lengths", "300", "--kernel", "automatic",
                                      "--max-relative-error", "0.001", "--allow", "clustered"});
  EXPECT_THAT(table, HasSubstr("clustered (100 clusters"));
  EXPECT_THAT(table, HasSubstr("predicted"));
  EXPECT_THAT(table, HasSubstr("over 32 rows per sequence"));
  const json asked =
      json::parse(OutputOf({"attend", "--lengths", "300", "--kernel", "improved-clustered",
                            "--fidelity-rows", "300", "--output", "json"}));
  EXPECT_EQ(asked["fidelity"]["rows"], 300);
  // The client's own check covers every row as well.
  EXPECT_NEAR(asked["fidelity"]["relative_error"].get<double>(),
              asked["check"]["relative_error"].get<double>(), 1e-4);
}

TEST_F(CliTest, TensorsTravelThroughSharedMemory) {
  const auto attend = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"attend", "--lengths", "90,1,200", "--shared-memory"});
    return OutputOf(flags);
  };
  for (const char* dtype : {"float32", "float16", "bfloat16"}) {
    const json answer = json::parse(attend({"--dtype", dtype, "--value-dim", "12", "-o", "json"}));
    EXPECT_TRUE(answer["check"]["passed"].get<bool>()) << dtype;
    EXPECT_EQ(answer["output"]["shape"], json({291, 8, 12}));
  }
  // The answer's own bytes are those that come through the socket, for CAST's tensors too.
  for (const char* kernel : {"vanilla", "cast"}) {
    attend({"--kernel", kernel, "-o", "npy", "-f", folder_ + "/shared.npy"});
    OutputOf({"attend", "--lengths", "90,1,200", "--kernel", kernel, "-o", "npy", "-f",
              folder_ + "/socket.npy"});
    EXPECT_TRUE(ReadFile(folder_ + "/shared.npy") == ReadFile(folder_ + "/socket.npy")) << kernel;
  }
  // Larger than a message may be.
  EXPECT_THAT(OutputOf({"attend", "--lengths", "6000", "--shared-memory", "--no-check"}),
              HasSubstr("output       [6000, 8, 64]"));
  EXPECT_THAT(ErrorOf(1, {"attend", "--lengths", "4", "--key-lengths", "4,4", "--shared-memory"}),
              HasSubstr("key_lengths"));
  EXPECT_THAT(OutputOf({"info"}), HasSubstr("shared memory  64 regions at most"));
}

TEST_F(CliTest, AWrongAnswerEndsWithExitCode3) {
  // No fp16 answer is this exact, so the check must fail.
  const std::string error =
      ErrorOf(3, {"attend", "--lengths", "64", "--dtype", "float16", "--tolerance", "1e-9"});
  EXPECT_THAT(error, HasSubstr("check FAILED: relative error"));
}

TEST_F(CliTest, FilesGoInAndOut) {
  // Two sequences; the second has one key, whose value is then the answer exactly.
  const std::vector<float> query = {1, 2, 3, 4, 5, 6};
  const std::vector<float> key = {1, 0, 0, 1, 7, 7};
  const std::vector<float> value = {10, 20, 30};
  ASSERT_TRUE(client::WriteNpy(folder_ + "/q.npy", client::MakeTensor(query, {3, 1, 2})).ok());
  ASSERT_TRUE(client::WriteNpy(folder_ + "/k.npy", client::MakeTensor(key, {3, 1, 2})).ok());
  ASSERT_TRUE(client::WriteNpy(folder_ + "/v.npy", client::MakeTensor(value, {3, 1, 1})).ok());
  OutputOf({"attend", "--query", folder_ + "/q.npy", "--key", folder_ + "/k.npy", "--value",
            folder_ + "/v.npy", "--lengths", "2,1", "--check", "--output", "npy", "--file",
            folder_ + "/o.npy"});
  const auto output = client::ReadNpy(folder_ + "/o.npy");
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
  EXPECT_THAT(ErrorOf(1, {"attend", "--lengths", "4", "--kernel", "cast", "--layer", "no/0"}),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("no/0")));
  EXPECT_THAT(ErrorOf(1, {"attend", "--lengths", "6000", "--no-check"}),
              HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(
      ErrorOf(1, {"attend", "--lengths", "4", "--kernel", "automatic", "--allow", "clustered"}),
      HasSubstr("automatic.allowed"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--lengths", "0"}), HasSubstr("--lengths"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--query", "q.npy"}), HasSubstr("--key"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--output", "npy"}), HasSubstr("--file"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--output", "xml"}), HasSubstr("xml"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--causal", "--kernel", "clustered"}), HasSubstr("--causal"));
  EXPECT_THAT(ErrorOf(2, {"attend", "--query", "/no/q.npy", "--key", "k", "--value", "v"}),
              HasSubstr("/no/q.npy"));
  EXPECT_THAT(ErrorOf(2, {"frobnicate"}), HasSubstr("castor"));
  EXPECT_THAT(ErrorOf(2, {"encode", "--ids", "1 two"}), HasSubstr("1 two"));
  EXPECT_THAT(ErrorOf(2, {"encode"}, ""), HasSubstr("standard input"));
}

TEST_F(CliTest, NoServerIsOneLineWithAHint) {
  const Outcome outcome = Run({"health", "--timeout", "2"}, "", "127.0.0.1:1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("is castor-server running")));
}

TEST_F(CliTest, HelpOfEverySubcommandHasExamples) {
  for (const char* command : {"attend", "encode", "models", "info", "health"}) {
    EXPECT_THAT(OutputOf({command, "--help"}), HasSubstr("Example")) << command;
  }
}

class CliEncodeTest : public CliTest {
 protected:
  void SetUp() override {
    if (!HaveModel()) GTEST_SKIP() << "no model at " CASTOR_TEST_MODEL;
  }
};

TEST_F(CliEncodeTest, SimilarTextsAreMoreAlike) {
  const json answer =
      json::parse(OutputOf({"encode", "A cat sleeps on the sofa.", "A kitten naps on the couch.",
                            "The central bank raised its rates.", "-o", "json"}));
  std::vector<std::vector<double>> rows;
  for (const json& sequence : answer["sequences"]) {
    rows.push_back(sequence["rows"][0].get<std::vector<double>>());
  }
  auto cosine = [&](size_t a, size_t b) {
    double product = 0;
    for (size_t i = 0; i < rows[a].size(); ++i) product += rows[a][i] * rows[b][i];
    return product;
  };
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NEAR(cosine(0, 0), 1, 1e-5) << "MiniLM's rows are normalised";
  EXPECT_GT(cosine(0, 1), cosine(0, 2) + 0.3);
  EXPECT_THAT(OutputOf({"encode", "one text"}), HasSubstr("COSINE WITH"));
}

TEST_F(CliEncodeTest, TextsComeFromArgumentsStandardInputAndFilesAlike) {
  std::ofstream(folder_ + "/texts") << "first text\r\nsecond\n";
  const std::string npy = folder_ + "/e.npy";
  std::vector<std::string> outputs;
  OutputOf({"encode", "first text", "second", "-o", "npy", "-f", npy});
  outputs.push_back(ReadFile(npy));
  OutputOf({"encode", "-o", "npy", "-f", npy}, "first text\nsecond\n");
  outputs.push_back(ReadFile(npy));
  OutputOf({"encode", "--text-file", folder_ + "/texts", "-o", "npy", "-f", npy});
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
}

TEST_F(CliEncodeTest, TokenIdsPairsAndTokenRows) {
  const json ids =
      json::parse(OutputOf({"encode", "--ids", "101 2023 102", "--ids", "101,102", "-o", "json"}));
  EXPECT_EQ(ids["shape"], json({2, 384}));
  EXPECT_EQ(ids["sequences"][0]["tokens"], 3);
  const json pair = json::parse(OutputOf({"encode", "who?", "--pair", "she", "-o", "json",
                                          "--token-embeddings", "--dimensions", "4"}));
  ASSERT_EQ(pair["sequences"].size(), 1u);
  EXPECT_EQ(pair["sequences"][0]["rows"].size(), 6u) << "[CLS] who ? [SEP] she [SEP]";
  EXPECT_EQ(pair["sequences"][0]["rows"][0].size(), 4u);
}

TEST_F(CliEncodeTest, ModelsAreListedAndUnknownOnesNotFound) {
  EXPECT_THAT(OutputOf({"models"}), HasSubstr("minilm  bert"));
  EXPECT_EQ(json::parse(OutputOf({"models", "minilm", "-o", "json"}))[0]["hidden_size"], "384");
  EXPECT_THAT(ErrorOf(1, {"models", "other"}), HasSubstr("castor models"));
  EXPECT_THAT(ErrorOf(1, {"encode", "x", "--model", "other"}), HasSubstr("NOT_FOUND"));
}

}  // namespace
}  // namespace castor::cli
