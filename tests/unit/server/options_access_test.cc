// Options about who gets in, and with what weight.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/unit/server/options_fixture.h"

namespace castor::server {
namespace {

using ::testing::HasSubstr;

TEST_F(OptionsTest, TenantsHaveWeights) {
  using Weights = std::map<std::string, TenantTerms>;
  EXPECT_TRUE(ParseOrDie({}).engine.tenants.empty());
  EXPECT_EQ(ParseOrDie({"--tenant-weight", "a=2", "--tenant-weight=team-1.eu=0.5"}).engine.tenants,
            (Weights{{"a", {2}}, {"team-1.eu", {0.5}}}));
  EXPECT_EQ(ParseOrDie({"--tenant-weight", "a=0.001,b=1e3"}).engine.tenants,
            (Weights{{"a", {0.001}}, {"b", {1000}}}));
  const std::string file = WriteFile("tenant-weight = [\"a=3\", \"b=4\"]\n");
  EXPECT_EQ(ParseOrDie({"--config", file}).engine.tenants, (Weights{{"a", {3}}, {"b", {4}}}));
  SetEnvironment("CASTOR_TENANT_WEIGHT", "a=5,c=6");
  EXPECT_EQ(ParseOrDie({"--config", file}).engine.tenants, (Weights{{"a", {5}}, {"c", {6}}}));
}

TEST_F(OptionsTest, BadWeightsAreRefused) {
  const auto error = [](const std::string& text) { return ErrorOf({"--tenant-weight", text}); };
  for (const char* nameless : {"2", "=2", "a b=2", "a:2", "\n=2"}) {
    EXPECT_THAT(error(nameless), HasSubstr("does not begin with a tenant's name and '='"));
  }
  EXPECT_THAT(error(std::string(65, 'a') + "=2"), HasSubstr("a tenant's name"));
  for (const char* no_number : {"a=", "a=x", "a=1x", "a==1", "a= 1", "a=1 "}) {
    EXPECT_THAT(error(no_number), HasSubstr("does not end in a number")) << no_number;
  }
  for (const char* beyond : {"a=0", "a=-1", "a=0.0009", "a=1000.1", "a=inf", "a=nan"}) {
    EXPECT_THAT(error(beyond), HasSubstr("is out of range (0.001 to 1000)")) << beyond;
  }
  EXPECT_THAT(error("a=1e999"), HasSubstr("--tenant-weight"));
  EXPECT_THAT(error("a=1,b=2,a=1"), HasSubstr("'a' is given twice"));
  EXPECT_THAT(ErrorOf({"--tenant-weight", "a=1", "--tenant-weight", "a=2"}),
              HasSubstr("--tenant-weight: 'a' is given twice"));
  EXPECT_THAT(ErrorOf({"--config", WriteFile("tenant-weight = \"a\"\n")}), HasSubstr("line 1"));
}

TEST_F(OptionsTest, WhoGetsInComesFromFiles) {
  const ServerOptions options =
      ParseOrDie({"--tls-certificate=c", "--tls-key=k", "--tls-client-ca=a",
                  "--tls-min-version=1.3", "--auth-tokens=t", "--metrics-tls", "--metrics-auth",
                  "--listen=0.0.0.0:1", "--metrics-listen=0.0.0.0:2"});
  EXPECT_EQ(options.access.tls.certificate, "c");
  EXPECT_EQ(options.access.tls.key, "k");
  EXPECT_EQ(options.access.tls.client_ca, "a");
  EXPECT_EQ(options.access.tls_min_version, TlsVersion::k13);
  EXPECT_EQ(options.access.callers, "t");
  EXPECT_TRUE(options.access.metrics_tls && options.access.metrics_callers);
  EXPECT_FALSE(ParseOrDie({}).access.tls.on());
  EXPECT_FALSE(ParseOrDie({}).access.identifies_callers());
}

TEST_F(OptionsTest, OptionsAboutWhoGetsInMustGoTogether) {
  EXPECT_THAT(ErrorOf({"--tls-key=k"}), HasSubstr("--tls-key: needs --tls-certificate"));
  EXPECT_THAT(ErrorOf({"--tls-certificate=c"}), HasSubstr("needs --tls-key"));
  EXPECT_THAT(ErrorOf({"--tls-client-ca=c"}), HasSubstr("--tls-client-ca: needs"));
  EXPECT_THAT(ErrorOf({"--metrics-tls"}), HasSubstr("--metrics-tls: needs"));
  EXPECT_THAT(ErrorOf({"--metrics-auth"}), HasSubstr("needs --auth-tokens"));
  EXPECT_THAT(ErrorOf({"--auth-tokens=t", "--tenant-weight=a=2"}), HasSubstr("[tenant.NAME]"));
}

TEST_F(OptionsTest, TokensDoNotTravelInTheClearUnlessToldTo) {
  for (const char* local : {"127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1", "unix:/s"}) {
    EXPECT_EQ(ParseOrDie({"--auth-tokens=t", "--listen=" + std::string(local)}).listen, local);
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example:1"}) {
    const std::string listen = "--listen=" + std::string(open);
    EXPECT_THAT(ErrorOf({"--auth-tokens=t", listen}), HasSubstr("--insecure-tokens")) << open;
    ParseOrDie({"--auth-tokens=t", listen, "--insecure-tokens"});
    ParseOrDie({"--auth-tokens=t", listen, "--tls-certificate=c", "--tls-key=k"});
  }
  EXPECT_THAT(ErrorOf({"--auth-tokens=t", "--metrics-auth", "--metrics-listen=0.0.0.0:1"}),
              HasSubstr("--metrics-tls"));
}

}  // namespace
}  // namespace castor::server
