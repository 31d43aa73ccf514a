// The castor command against servers of its own: models with several names, truncation, a server
// that starts late, and one that lies.

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "castor/v1/encoder.grpc.pb.h"
#include "tests/integration/client/cli_fixture.h"
#include "tests/support/temporary_folder.h"

namespace castor::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kReranker[] = CASTOR_GOLDEN_ENCODER "/heads/cross_encoder";

class CliModelsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<testing::ServerProcess>(std::vector<std::string>{
        "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--device", "cpu",
        "--cost-model-budget", "0s", "--model", std::string("org/cross-encoder=") + kReranker,
        "--model", std::string("alias=") + kReranker});
    const std::string line = server_->AwaitLine("listening grpc=");
    ASSERT_NE(line, "") << server_->output();
    const size_t begin = line.find("grpc=") + 5;
    address_ = line.substr(begin, line.find_first_of(" \n", begin) - begin);
  }
  static void TearDownTestSuite() { server_.reset(); }

  Outcome Run(const std::vector<std::string>& arguments, const std::string& server = address_,
              const std::string& redirections = "") {
    return testing::RunProgram(CASTOR_PROGRAM, arguments, {{"CASTOR_SERVER", server}},
                               folder_.path(), "", redirections);
  }
  json JsonOf(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
  }

  const TemporaryFolder folder_;
  static std::unique_ptr<testing::ServerProcess> server_;
  static std::string address_;
};

std::unique_ptr<testing::ServerProcess> CliModelsTest::server_;
std::string CliModelsTest::address_;

TEST_F(CliModelsTest, AModelIsServedByEachOfItsNamesAndLoadedOnce) {
  EXPECT_THAT(
      server_->output(),
      AllOf(HasSubstr("model=org/cross-encoder "), HasSubstr("head=reranker"),
            HasSubstr("outputs=\"SCORES, LOGITS"), HasSubstr("alias_of=org/cross-encoder")));
  const json models = JsonOf({"models"});
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0]["name"], "alias");
  EXPECT_EQ(models[1]["name"], "org/cross-encoder");
  std::vector<json> answers;
  for (const char* name : {"alias", "org/cross-encoder"}) {
    EXPECT_EQ(Run({"health", std::string("model/") + name}).out, "SERVING\n");
    answers.push_back(JsonOf({"rerank", "a mill", "the sea", "a river", "--model", name}));
    EXPECT_EQ(answers.back()["model"], name);
  }
  EXPECT_EQ(answers[0]["results"], answers[1]["results"]);
  // There is one model, so a request need not name it. The answer has its first name.
  EXPECT_EQ(JsonOf({"rerank", "a mill", "the sea", "a river"})["model"], "org/cross-encoder");
}

TEST_F(CliModelsTest, RerankSaysWhichDocumentsWereCut) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the river runs past the mill ";
  const Outcome cut = Run({"rerank", "a mill", "the sea", text, "a river"});
  EXPECT_EQ(cut.exit_code, 0);
  EXPECT_THAT(cut.err, AllOf(HasSubstr("warning: 1 of 3 documents"), HasSubstr(": [1];"),
                             HasSubstr("--no-truncate")));
  EXPECT_THAT(cut.out, HasSubstr("32 (cut)"));
  // The warning also names documents that the table leaves out.
  EXPECT_THAT(Run({"rerank", "a mill", text, "a mill", "--top-n", "1"}).err, HasSubstr("[0]"));
  EXPECT_EQ(Run({"rerank", "a mill", "the sea"}).err, "");
  const Outcome refused = Run({"rerank", "a mill", "the sea", text, "--no-truncate"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("documents[1]"));
  EXPECT_THAT(Run({"encode", "a mill", text, "a river", text, "-o", "json"}).err,
              HasSubstr("2 of 4 inputs were truncated to the model's maximum length ('castor "
                        "models' shows it): [1], [3];"));
}

// The server stays away for longer than a few quick attempts take.
TEST_F(CliModelsTest, ACallWaitsForAServerThatIsAway) {
  const std::string target = "unix:" + folder_ / "socket", told = folder_ / "told";
  Outcome waited;
  std::thread waiting([&] { waited = Run({"info"}, target, "2>" + told); });
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(50);
  while (testing::ReadFile(told).empty() && std::chrono::steady_clock::now() < patience) {
    std::this_thread::yield();
  }
  EXPECT_THAT(testing::ReadFile(told), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("trying again")));
  testing::ServerProcess server({"--listen", target, "--metrics-listen", "127.0.0.1:0", "--device",
                                 "cpu", "--cost-model-budget", "0s"});
  EXPECT_NE(server.AwaitLine("listening grpc="), "") << server.output();
  waiting.join();
  EXPECT_EQ(waited.exit_code, 0) << testing::ReadFile(told);
  EXPECT_THAT(waited.out, HasSubstr("vanilla"));
}

// Ranks documents that were not in the request.
class LyingEncoder : public v1::EncoderService::Service {
 public:
  grpc::Status Rerank(grpc::ServerContext*, const v1::RerankRequest* request,
                      v1::RerankResponse* response) override {
    for (int i = 0; i < request->documents_size(); ++i) {
      response->add_truncated(false);
      response->add_token_counts(3);
      response->add_results()->set_index(i);
    }
    lie(response);
    return grpc::Status::OK;
  }
  std::function<void(v1::RerankResponse*)> lie;
};

TEST_F(CliModelsTest, ARankingIsCheckedAgainstItsRequest) {
  LyingEncoder encoder;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&encoder);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto rank = [&](std::function<void(v1::RerankResponse*)> lie) {
    encoder.lie = std::move(lie);
    return Run({"rerank", "q", "a", "b"}, "127.0.0.1:" + std::to_string(port));
  };
  EXPECT_EQ(rank([](auto*) {}).exit_code, 0);
  for (const auto& lie : std::vector<std::function<void(v1::RerankResponse*)>>{
           [](auto* r) { r->mutable_results(0)->set_index(-1); },
           [](auto* r) { r->mutable_results(0)->set_index(2); },
           [](auto* r) { r->mutable_results(0)->set_index(1); },
           [](auto* r) { r->mutable_results()->RemoveLast(); },
           [](auto* r) { r->add_results()->set_index(0); }, [](auto* r) { r->clear_truncated(); },
           [](auto* r) { r->add_token_counts(3); }}) {
    const Outcome outcome = rank(lie);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("does not fit the request"));
    EXPECT_EQ(outcome.out, "");
  }
}

// A file gets the format of its name, or is not written.
TEST_F(CliModelsTest, AFileOfAnotherFormatIsNotWritten) {
  for (const char* name : {"x.csv", "x.CSV", "x.tsv", "x.jsonl", "x.parquet", "x.npz"}) {
    const std::string file = folder_ / name;
    const Outcome outcome = Run({"encode", "a mill", "-f", file});
    EXPECT_EQ(outcome.exit_code, 2) << name;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(".json and .npy"), HasSubstr("--output"))) << name;
    EXPECT_FALSE(std::filesystem::exists(file)) << name;
  }
  EXPECT_THAT(Run({"models", "-f", folder_ / "x.csv"}).err, Not(HasSubstr(".npy")));
  EXPECT_EQ(Run({"encode", "a mill", "-o", "table", "-f", folder_ / "x.csv"}).exit_code, 0);
  EXPECT_EQ(Run({"encode", "a mill", "-f", folder_ / "x.JSON"}).exit_code, 0);
  EXPECT_TRUE(json::accept(testing::ReadFile(folder_ / "x.JSON")));
  EXPECT_EQ(Run({"encode", "a mill", "-f", folder_ / "x.v2"}).exit_code, 0);
}

}  // namespace
}  // namespace castor::cli
