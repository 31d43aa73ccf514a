// What it costs to ask who calls: the time of Authorize, taken around each call of a server that is
// called over a real connection, with 8,000 callers in its file.
//   authorize_bench [CALLS]

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "castor/v1/server.grpc.pb.h"
#include "engine/base/mutex.h"
#include "server/auth/caller_authorizer.h"
#include "server/server.h"
#include "tests/support/fake_engine.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_authority.h"

namespace {

using namespace castor;
using castor::testing::KeyPair;
using Clock = std::chrono::steady_clock;

constexpr char kToken[] = "castor_a_token_of_the_usual_length_000000000000000";
constexpr char kUri[] = "spiffe://example/bench";
constexpr int kCallers = 8'000;
constexpr int kWarmUp = 1'000;

struct Times {
  Mutex mu;
  std::vector<double> ns ABSL_GUARDED_BY(mu);
};

// Times another authorizer.
class Timed final : public server::Authorizer {
 public:
  Timed(std::unique_ptr<server::Authorizer> inner, Times& times)
      : inner_(std::move(inner)), times_(times) {}

  absl::StatusOr<server::Caller> Authorize(const grpc::ServerContextBase& context,
                                           std::string_view method) const override {
    const auto begin = Clock::now();
    absl::StatusOr<server::Caller> caller = inner_->Authorize(context, method);
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    MutexLock lock(times_.mu);
    times_.ns.push_back(took.count());
    return caller;
  }

 private:
  const std::unique_ptr<server::Authorizer> inner_;
  Times& times_;
};

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// Callers with tokens that nobody has, and one of each kind that the bench plays.
std::string Callers() {
  const std::string kAnything = "allow = [\"*\"]\nexpires = \"never\"\n";
  std::string text;
  for (int i = 0; i < kCallers; ++i) {
    const std::string name = "caller-" + std::to_string(i);
    text += "[[caller]]\nname = \"" + name + "\"\nsha256 = \"" +
            server::ToHex(server::DigestOf(name)) + "\"\n" + kAnything;
  }
  text += "[[caller]]\nname = \"token\"\nsha256 = \"" + server::ToHex(server::DigestOf(kToken)) +
          "\"\nallow = [\"castor.v1.EncoderService\", \"castor.v1.ServerService\"]\n" +
          "expires = 2199-01-01\n";
  return text + "[[caller]]\nname = \"certificate\"\nsan = \"" + kUri + "\"\n" + kAnything +
         "[end]\n";
}

// Calls until there are `calls` times; prints their quantiles.
void Measure(const char* what, bool token, int calls) {
  const TemporaryFolder folder;
  const testing::TestAuthority authority;
  const KeyPair own = authority.IssueForLocalhost();
  const KeyPair client = authority.Issue({.common_name = "bench", .uris = {kUri}});
  Write(folder / "server.pem", own.certificate);
  Write(folder / "server.key", own.key);
  Write(folder / "ca.pem", authority.certificate());
  Write(folder / "callers.toml", Callers());
  auto callers = server::OpenCallers(folder / "callers.toml");
  if (!callers.ok()) std::abort();

  FakeEngine metered;
  server::Metrics metrics(metered);
  server::Refusals refusals(metrics.access());
  Times times;
  server::ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.metrics_listen = "";
  options.access.tls = {folder / "server.pem", folder / "server.key", folder / "ca.pem"};
  auto started = server::Server::Start(
      options, std::make_unique<FakeEngine>(),
      std::make_unique<Timed>(std::make_unique<server::CallerAuthorizer>(callers->get(), refusals),
                              times));
  if (!started.ok()) std::abort();
  const auto stub = v1::ServerService::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string((*started)->port()),
      grpc::SslCredentials({authority.certificate(), client.key, client.certificate})));
  for (int i = 0; i < kWarmUp + calls; ++i) {
    grpc::ClientContext context;
    if (token) context.AddMetadata("authorization", std::string("Bearer ") + kToken);
    v1::ServerInfo info;
    const grpc::Status status = stub->GetServerInfo(&context, {}, &info);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s\n", status.error_message().c_str());
    std::exit(1);
  }
  MutexLock lock(times.mu);
  std::vector<double> ns(times.ns.begin() + kWarmUp, times.ns.end());
  std::sort(ns.begin(), ns.end());
  const auto at = [&](double quantile) {
    return ns[static_cast<size_t>(quantile * static_cast<double>(ns.size() - 1))];
  };
  std::printf("%-12s %7zu calls: p50 %5.0f ns, p90 %5.0f, p99 %5.0f\n", what, ns.size(), at(0.5),
              at(0.9), at(0.99));
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 20'000;
  double least = 1e9;
  for (int i = 0; i < 1000; ++i) {
    const auto begin = Clock::now();
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    least = std::min(least, took.count());
  }
  std::printf("two looks at the clock, which each time includes: %.0f ns\n", least);
  Measure("token", true, calls);
  Measure("certificate", false, calls);
  return 0;
}
