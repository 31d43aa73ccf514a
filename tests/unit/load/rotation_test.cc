// A run whose token and certificates are replaced under it.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>

#include "client/file.h"
#include "client/load/drive/driver.h"
#include "tests/support/secure_server.h"
#include "tests/support/temporary_folder.h"

namespace castor::load {
namespace {

using castor::testing::SecureServer;
using castor::testing::TestAuthority;

// It goes on until the server has seen both tokens and both certificates, whatever that takes.
TEST(RotationTest, ARunSurvivesNewTokensAndCertificates) {
  TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& text) {
    EXPECT_TRUE(client::WriteFile(folder / "new", {text}).ok());
    EXPECT_EQ(std::rename((folder / "new").c_str(), (folder / name).c_str()), 0);
    return folder / name;
  };
  const TestAuthority first, second("another");
  const auto one = first.Issue({.common_name = "one"}), two = first.Issue({.common_name = "two"});
  const auto serves = [&](const TestAuthority& authority) {
    return SecureServer::Options{.identity = authority.IssueForLocalhost(),
                                 .client_authority = first.certificate()};
  };
  SecureServer server(serves(first));
  server.RequireToken("first");

  Workload workload;
  ClassSpec spec;
  spec.name = "attend";
  spec.call = AttendSpec{.lengths = FixedLength{4}, .heads = 1, .head_dim = 4};
  spec.payloads = 1;
  workload.classes = {spec};
  workload.load = ClosedLoop{.callers = 1};
  workload.warm_up = {};
  workload.duration = std::chrono::minutes(5);
  DriveOptions options{.endpoints = {server.target()}, .connections = 1};
  options.client.tls = client::TlsOptions{.ca_file = file("ca", first.certificate()),
                                          .certificate_file = file("cert", one.certificate),
                                          .key_file = file("key", one.key)};
  options.client.token_file = file("token", "first\n");
  Driver driver(workload, options);
  driver.Prepare();
  EXPECT_EQ(server.caller(), "one");
  EXPECT_EQ(server.authorization(), "Bearer first");

  std::atomic<bool> stop = false;
  bool rotated = false;
  int64_t before = 0, after = 0;
  const RunData run = driver.Run(
      [&](const Progress& progress) {
        const int64_t ok = progress.all[0].outcomes[static_cast<size_t>(Outcome::kOk)];
        if (!rotated && ok > 0) {
          rotated = true;
          before = ok;
          file("cert", two.certificate);
          file("key", two.key);
          file("ca", second.certificate());
          file("token", "second\n");
          server.RequireToken("second");
          server.Restart(serves(second));
        }
        const bool seen = server.caller() == "two" && server.authorization() == "Bearer second";
        const int64_t recent = progress.last[0].outcomes[static_cast<size_t>(Outcome::kOk)];
        if (rotated && seen && recent > 0) {
          after = recent;
          stop = true;
        }
      },
      stop);
  EXPECT_GT(before, 0);
  EXPECT_GT(after, 0) << "requests were answered again";
}

}  // namespace
}  // namespace castor::load
