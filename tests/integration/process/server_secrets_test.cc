// What a caller presents to say who it is must not show up anywhere: not in the log, not in an
// error, not in the metrics, however wrong it is.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/integration/access/secure_fixture.h"
#include "tests/integration/process/server_process.h"
#include "tests/integration/raw_client.h"

namespace castor::testing {
namespace {

// A word of it is enough to give it away.
constexpr char kSecret[] = "Qm9uZGFnZU9mQmVhdmVycw";

int PortIn(const std::string& line, const std::string& what) {
  const size_t at = line.find(what + "=127.0.0.1:");
  return at == std::string::npos ? 0 : std::stoi(line.substr(at + what.size() + 11));
}

// What the server answers to a scrape with this header.
std::string PageFor(int port, const std::string& authorization) {
  RawClient client(port);
  client.Send("GET /metrics HTTP/1.0\r\nAuthorization: " + authorization + "\r\n\r\n");
  return client.ReadAll();
}

TEST(ServerSecretsTest, NoTokenIsEverSaidAgain) {
  const TemporaryFolder folder;
  const std::string token = std::string("castor_") + kSecret;
  const std::string file = folder / "callers.toml";
  WriteText(file, CallersFile(CallerEntry("beaver", token) +
                              CallerEntry("mole", "mole" + token, "expires = 2020-01-01") +
                              CallerEntry("hare", "hare" + token, "allow = [\"metrics\"]")));
  ServerProcess process({"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--device",
                         "cpu", "--cpu-threads", "1", "--cost-model-budget", "0s", "--log-level",
                         "debug", "--auth-tokens", file, "--metrics-auth"});
  const std::string line = process.AwaitLine("listening");
  const int port = PortIn(line, "grpc"), metrics_port = PortIn(line, "metrics");
  ASSERT_GT(port, 0) << process.output();
  const auto stub = v1::AttentionService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  std::string said;
  const auto call = [&](const std::vector<std::pair<std::string, std::string>>& metadata) {
    AttendCall attempt;
    for (const auto& [key, value] : metadata) attempt.context.AddMetadata(key, value);
    const grpc::Status status = attempt.Run(*stub, AttendOf(1));
    said += status.error_message() + status.error_details();
    for (const auto& [key, value] : attempt.context.GetServerTrailingMetadata()) {
      said.append(value.data(), value.size());
    }
    return status.ok();
  };
  EXPECT_TRUE(call({{"authorization", "Bearer " + token}}));
  EXPECT_TRUE(call({{"authorization", "Bearer " + token}, {"castor-tenant", token + "/"}}));
  for (const std::string& value :
       {token, "Bearer " + token + "x", "Bearer " + token + " ", "Bearer mole" + token,
        "Bearer hare" + token, "Basic " + token, token + " " + token}) {
    EXPECT_FALSE(call({{"authorization", value}})) << value;
    said += PageFor(metrics_port, value);
  }
  EXPECT_FALSE(call({{"authorization", "Bearer " + token}, {"authorization", "Bearer " + token}}));
  EXPECT_FALSE(call({{"castor-tenant", token + "/"}}));
  const std::string page = PageFor(metrics_port, "Bearer hare" + token);
  EXPECT_NE(page.find("castor_callers_refused_total"), std::string::npos) << page;
  said += page;
  // A file with the tokens themselves, where their digests should be.
  ReplaceText(file, CallersFile("[[caller]]\nname = \"beaver\"\nsha256 = \"" + token + "\"\n"));
  EXPECT_NE(process.AwaitLine("changed files are refused"), "");
  ReplaceText(file, CallersFile("[[caller]]\nname = \"beaver\"\nsha256 = " + token + "\n"));
  EXPECT_NE(process.AwaitLine("changed files are refused"), "");
  ReplaceText(file, CallersFile("[[caller]]\nname = \"beaver\"\ntoken = \"" + token + "\"\n"));
  EXPECT_NE(process.AwaitLine("changed files are refused"), "");
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_NE(process.output().find("caller refused"), std::string::npos);
  EXPECT_EQ(said.find(kSecret), std::string::npos) << said;
  EXPECT_EQ(process.output().find(kSecret), std::string::npos) << process.output();
}

}  // namespace
}  // namespace castor::testing
