#include "tests/integration/access/secure_fixture.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "server/auth/token.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {

std::string WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  EXPECT_TRUE(file.good()) << path;
  return path;
}

void ReplaceText(const std::string& path, const std::string& text) {
  std::filesystem::rename(WriteText(path + ".new", text), path);
}

namespace {

std::string EntryOf(const std::string& name, const std::string& credential,
                    const std::string& more) {
  std::string entry = "[[caller]]\nname = \"" + name + "\"\n" + credential + "\n" + more + "\n";
  if (more.find("allow =") == std::string::npos) entry += "allow = [\"*\"]\n";
  if (more.find("expires =") == std::string::npos) entry += "expires = \"never\"\n";
  return entry;
}

}  // namespace

std::string CallerEntry(const std::string& name, const std::string& token,
                        const std::string& more) {
  return EntryOf(name, "sha256 = \"" + server::ToHex(server::DigestOf(token)) + "\"", more);
}

std::string CertificateEntry(const std::string& name, const std::string& san,
                             const std::string& more) {
  return EntryOf(name, "san = \"" + san + "\"", more);
}

std::string CallersFile(const std::string& entries) { return entries + "[end]\n"; }

server::ServerOptions SecureServerTest::Watching() {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.access.check_interval = std::chrono::milliseconds(10);
  options.handshake_timeout = Patience(std::chrono::seconds(60));
  return options;
}

server::ServerOptions SecureServerTest::WithTls() {
  server::ServerOptions options = Watching();
  options.access.tls.certificate = WriteText(folder_ / "server.pem", pair_.certificate);
  options.access.tls.key = WriteText(folder_ / "server.key", pair_.key);
  return options;
}

server::ServerOptions SecureServerTest::WithMutualTls() {
  server::ServerOptions options = WithTls();
  options.access.tls.client_ca = WriteText(folder_ / "clients.pem", authority_.certificate());
  return options;
}

server::ServerOptions SecureServerTest::WithCallers(const std::string& callers) {
  return WithCallers(callers, Watching());
}

server::ServerOptions SecureServerTest::WithCallers(const std::string& callers,
                                                    server::ServerOptions options) {
  options.access.callers = WriteText(folder_ / "callers.toml", CallersFile(callers));
  return options;
}

void SecureServerTest::StartSecure(server::ServerOptions options) {
  auto engine = std::make_unique<FakeEngine>();
  FakeEngine* fake = engine.get();
  secure_ = options.access.tls.on();
  StartServer(std::move(options), std::move(engine), nullptr);
  engine_ = fake;
}

std::shared_ptr<grpc::Channel> SecureServerTest::Dial(const Papers& papers) const {
  if (!secure_) return NewChannel();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, papers.name);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = papers.authority.empty() ? authority_.certificate() : papers.authority;
  if (papers.identity) {
    options.pem_cert_chain = papers.identity->certificate;
    options.pem_private_key = papers.identity->key;
  }
  return grpc::CreateCustomChannel(address(), grpc::SslCredentials(options), arguments);
}

grpc::Status SecureServerTest::Attend(const std::shared_ptr<grpc::Channel>& channel,
                                      const std::string& authorization) {
  AttendCall call;
  call.context.set_deadline(std::chrono::system_clock::now() + Patience(std::chrono::seconds(60)));
  if (!authorization.empty()) call.context.AddMetadata("authorization", authorization);
  return call.Run(*v1::AttentionService::NewStub(channel), AttendOf(2));
}

std::string SecureServerTest::Enter(TlsClient::Options options) const {
  return TlsClient(server_->port(), options).Enter();
}

int SecureServerTest::OpenDescriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<int>(std::distance(begin(open), end(open)));
}

bool SecureServerTest::AwaitReloads(const std::string& what, const std::string& result,
                                    double count) const {
  return AwaitMetric("castor_reloads_total{result=\"" + result + "\",what=\"" + what + "\"}",
                     count);
}

}  // namespace castor::testing
