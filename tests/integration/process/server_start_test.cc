// castor-server with tight system limits: it starts, or ends with one line that says why not.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "castor/v1/server.grpc.pb.h"
#include "engine/base/machine.h"
#include "tests/integration/access/secure_fixture.h"
#include "tests/integration/process/server_process.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"
#include "tests/support/words.h"

namespace castor::testing {
namespace {

using ::testing::ContainsRegex;
using Arguments = std::vector<std::string>;

constexpr int64_t kMiB = int64_t{1} << 20;

const Arguments kQuick = Words(
    "--listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --device cpu --cost-model-budget 0s "
    "--cpu-threads 2");

std::string Limit(const char* resource, int64_t value) {
  return "--" + std::string(resource) + "=" + std::to_string(value);
}

// Whether the program reaches its main function; its libraries need resources before that.
bool Loads(const std::string& limit) {
  ServerProcess process({"--version"}, {"prlimit", limit});
  return process.Wait() == 0;
}

// Starts it with `limit`. Returns whether it serves. If it does not, it must have failed as
// documented.
bool StartsOrSaysWhyNot(const std::string& limit) {
  ServerProcess process(kQuick, {"prlimit", limit});
  if (!process.AwaitLine(" listening ").empty()) {
    process.Signal(SIGKILL);
    process.Wait();
    return true;
  }
  EXPECT_EQ(process.Wait(), 1) << limit << ": " << process.output();
  const std::string& output = process.output();
  const size_t at = output.rfind("castor-server: cannot start: ");
  EXPECT_NE(at, std::string::npos) << limit << ": " << output;
  EXPECT_EQ(output.find('\n', at), output.size() - 1) << limit << ": " << output;
  return false;
}

// Also while others load: a line each, with what an operator would look up.
TEST(ServerStartTest, SaysWhichModelsItLoaded) {
  const std::string golden = CASTOR_GOLDEN_ENCODER;
  Arguments arguments = kQuick;
  arguments.insert(arguments.end(), {"--model", "tiny=" + golden + "/tiny_bert", "--model",
                                     "splade=" + golden + "/heads/splade_bert"});
  ServerProcess process(arguments);
  const std::string tiny = process.AwaitLine("model loaded"),
                    splade = process.AwaitLine("model loaded");
  EXPECT_THAT(tiny, ContainsRegex("model=tiny path=[^ ]*tiny_bert family=bert dtype=FLOAT32 "
                                  "bytes=[0-9]+ seconds=[0-9.e-]+ max_tokens=[0-9]+ pooling=CLS"));
  EXPECT_THAT(splade, ContainsRegex("model=splade path=[^ ]*splade_bert family=bert"));
  EXPECT_THAT(tiny, ContainsRegex("head=embeddings outputs=\"POOLED"));
  EXPECT_THAT(splade, ContainsRegex("head=\"sparse embeddings\" outputs=\"SPARSE"));
  EXPECT_NE(process.AwaitLine(" listening "), "") << process.output();
}

// It used to call std::terminate, or to hang in a library that waited for a thread that could not
// be started.
TEST(ServerStartTest, WithoutAddressSpaceItEndsWithOneLine) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs terabytes of it";
  int refused = 0;
  int64_t limit = 400 * kMiB;
  while (limit < 4096 * kMiB && !Loads(Limit("as", limit))) limit += 8 * kMiB;
  for (; limit < 4096 * kMiB; limit += 24 * kMiB) {
    if (StartsOrSaysWhyNot(Limit("as", limit))) break;
    ++refused;
  }
  EXPECT_GT(refused, 1);
  EXPECT_LT(limit, 4096 * kMiB);
}

TEST(ServerStartTest, WithoutDescriptorsItEndsWithOneLine) {
  bool served = false;
  for (const int descriptors : {6, 12, 31, 64}) {
    if (kSanitized && descriptors != 12 && descriptors != 64) continue;  // starting takes long
    const std::string limit = Limit("nofile", descriptors);
    if (!Loads(limit)) continue;
    served = StartsOrSaysWhyNot(limit);
    EXPECT_TRUE(served || descriptors < 64) << descriptors;
    EXPECT_TRUE(!served || descriptors >= 32) << descriptors;
  }
  EXPECT_TRUE(served);
}

TEST(ServerStartTest, EveryNumberWorksAtItsUpperBound) {
  if (kSanitized) GTEST_SKIP() << "thousands of threads";
  ServerProcess process(Words(
      "--listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --device cpu --cost-model-budget 0s "
      "--cpu-threads 1024 --max-concurrent-streams 65536 --shared-memory "
      "--max-batch-tokens 1073741824 --max-batch-requests 65536 --batch-delay 1s "
      "--max-queued-requests 16777216 --max-queued-tokens 1099511627776 --max-queued-bytes 1TiB "
      "--max-device-bytes 16TiB --max-kept-bytes 1TiB --max-message-bytes 2147483647 "
      "--max-text-bytes 64MiB --answer-cache 1TiB --max-connection-age 24h --max-deadline 24h "
      "--drain-deadline 1h"));
  const std::string line = process.AwaitLine(" listening ");
  const size_t at = line.find("grpc=");
  ASSERT_NE(at, std::string::npos) << process.output();
  const std::string address = line.substr(at + 5, line.find(' ', at) - at - 5);
  const auto stub = v1::AttentionService::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  AttendCall call;
  const grpc::Status status = call.Run(*stub, AttendOf(3));
  EXPECT_TRUE(status.ok()) << status.error_message();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0) << process.output();
}

TEST(ServerStartTest, BudgetsFollowFromTheMemoryLimit) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs terabytes of address space";
  const int64_t limit = std::min(MemoryLimitBytes(), 4096 * kMiB);
  ServerProcess process(kQuick, {"prlimit", Limit("as", limit)});
  const std::string line = process.AwaitLine(" listening ");
  const size_t at = line.find("grpc=");
  ASSERT_NE(at, std::string::npos) << process.output();
  const std::string address = line.substr(at + 5, line.find(' ', at) - at - 5);
  const auto stub =
      v1::ServerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ServerInfo info;
  const grpc::Status status = stub->GetServerInfo(&context, {}, &info);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(info.limits().max_queued_bytes(), limit / 4 / kMiB * kMiB);
  EXPECT_EQ(info.limits().max_device_bytes(), limit / 2);
  EXPECT_EQ(info.limits().max_message_bytes(), limit / 16 / kMiB * kMiB);
  EXPECT_EQ(info.devices(0).memory_bytes(), limit);
}

// What a caller presents to say who it is must not show up anywhere: not in the log, not in an
// error, not in the metrics, however wrong it is.

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
