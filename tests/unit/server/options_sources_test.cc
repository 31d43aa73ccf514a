// Options from flags, the environment and a file, and which of them wins.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <string>

#include "tests/unit/server/options_fixture.h"

namespace castor::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(OptionsTest, FlagsWinOverEnvironmentWhichWinsOverFile) {
  const std::string file = WriteFile(
      "max-batch-tokens = 1001\nmax-batch-requests = 11\nmax-queued-tokens = 101\nload-reports = "
      "true\n"
      "max-message-bytes = \"1MiB\"\n");
  SetEnvironment("CASTOR_MAX_BATCH_REQUESTS", "12");
  SetEnvironment("CASTOR_MAX_QUEUED_TOKENS", "102");
  SetEnvironment("CASTOR_REFLECTION", "false");
  const ServerOptions options = ParseOrDie({"--config", file, "--max-queued-tokens", "103"});
  EXPECT_EQ(options.engine.max_batch_tokens, 1001);  // file alone
  EXPECT_EQ(options.engine.max_batch_requests, 12);  // environment over file
  EXPECT_EQ(options.engine.max_queued_tokens, 103);  // flag over both
  EXPECT_EQ(options.max_message_bytes, 1 << 20);
  EXPECT_TRUE(options.load_reports);
  EXPECT_FALSE(options.reflection);
}

TEST_F(OptionsTest, TheFileCanBeNamedByTheEnvironment) {
  SetEnvironment("CASTOR_CONFIG", WriteFile("max-batch-tokens = 77\n"));
  EXPECT_EQ(ParseOrDie({}).engine.max_batch_tokens, 77);
}

TEST_F(OptionsTest, AMissingFileIsAnErrorHoweverItIsNamed) {
  EXPECT_THAT(ErrorOf({"--config", folder_ + "/none.toml"}), HasSubstr("none.toml"));
  SetEnvironment("CASTOR_CONFIG", folder_ + "/nothing.toml");
  EXPECT_THAT(ErrorOf({}), HasSubstr("nothing.toml"));
}

TEST_F(OptionsTest, UnknownKeysAndSectionsOfTheFileAreRefused) {
  EXPECT_THAT(ErrorOf({"--config", WriteFile("\nmax-batch-tokn = 5\n")}),
              HasSubstr("castor.toml: line 2: unknown key 'max-batch-tokn'"));
  for (const char* key : {"config", "version", "no-reflection", "listen.port", "\"a\\nb\""}) {
    EXPECT_THAT(ErrorOf({"--config", WriteFile(std::string(key) + " = true\n")}),
                HasSubstr("unknown "))
        << key;
  }
  EXPECT_THAT(ErrorOf({"--config", WriteFile("[engine]\nmax-batch-tokens = 5\n")}),
              HasSubstr("unknown section [engine]"));
  EXPECT_THAT(ErrorOf({"--config", WriteFile("help = true\n")}), HasSubstr("unknown key 'help'"));
}

// A file that says 7 for a boolean may mean something else.
TEST_F(OptionsTest, TheFilesTypesAreStrict) {
  const auto error = [&](const std::string& line) {
    return ErrorOf({"--config", WriteFile("# a comment\n" + line + "\n")});
  };
  EXPECT_THAT(error("shared-memory = 7"),
              AllOf(HasSubstr("line 2"), HasSubstr("takes true or false, not an integer")));
  EXPECT_THAT(error("shared-memory = \"true\""), HasSubstr("not a string"));
  EXPECT_THAT(error("max-batch-tokens = \"5\""), HasSubstr("takes an integer, not a string"));
  EXPECT_THAT(error("max-batch-tokens = 5.0"), HasSubstr("not a number"));
  EXPECT_THAT(error("max-batch-tokens = true"), HasSubstr("not true or false"));
  EXPECT_THAT(error("max-batch-tokens = [\"5\"]"), HasSubstr("not an array"));
  EXPECT_THAT(error("max-message-bytes = 1.5"), HasSubstr("a string or an integer"));
  EXPECT_THAT(error("drain-delay = true"), HasSubstr("a string or an integer"));
  EXPECT_THAT(error("drain-delay = 5"), AllOf(HasSubstr("duration"), HasSubstr("line 2")));
  EXPECT_THAT(error("fidelity-share = \"1\""), HasSubstr("not a string"));
  EXPECT_THAT(error("log-level = 1"), HasSubstr("takes a string"));
  EXPECT_THAT(error("model = [1]"), HasSubstr("only strings"));
  EXPECT_THAT(error("model = 1"), HasSubstr("a string or an array of strings"));
  EXPECT_THAT(error("drain-delay = 2006-01-02"), HasSubstr("line 2"));
  const ServerOptions good = ParseOrDie(
      {"--config", WriteFile("max-message-bytes = 1_048_576\nmax-batch-tokens = 0x10\n"
                             "drain-delay = 0\nfidelity-share = 1\nlisten = '[::1]:0'\n")});
  EXPECT_EQ(good.max_message_bytes, 1 << 20);
  EXPECT_EQ(good.engine.max_batch_tokens, 16);
  EXPECT_EQ(good.engine.fidelity_share, 1);
  EXPECT_EQ(good.listen, "[::1]:0");
}

TEST_F(OptionsTest, WhatIsNoTomlIsRefusedWithItsLine) {
  for (const char* text : {"\ncost-model = \"/tmp/x", "\nlisten = 127.0.0.1:50051", "\nlisten",
                           "\nlisten = 'a' 'b'", "a = 1\na = 2"}) {
    EXPECT_THAT(ErrorOf({"--config", WriteFile(text)}), HasSubstr("castor.toml: line 2: ")) << text;
  }
  EXPECT_THAT(ErrorOf({"--config", WriteFile("\xff\xfe")}), HasSubstr("utf-8"));
}

TEST_F(OptionsTest, OnlyARegularFileOfSaneSizeIsRead) {
  const std::string pipe = folder_ + "/pipe.toml";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf({"--config", pipe}), HasSubstr("pipe.toml: is a pipe, not a regular file"));
  EXPECT_THAT(ErrorOf({"--config", folder_}), HasSubstr("not a regular file"));
  EXPECT_THAT(ErrorOf({"--config", "/dev/zero"}), HasSubstr("not a regular file"));
  EXPECT_THAT(ErrorOf({"--config", ""}), HasSubstr("no such file"));
  EXPECT_THAT(ErrorOf({"--config", WriteFile(std::string((1 << 20) + 1, '#'))}),
              HasSubstr("at most 1048576 can be read"));
}

TEST_F(OptionsTest, FlagsAreTrueOrFalseWhereverTheyComeFrom) {
  for (const char* bad : {"7", "-1", "maybe", "t", "truefalse"}) {
    EXPECT_THAT(ErrorOf({std::string("--load-reports=") + bad}),
                AllOf(HasSubstr("--load-reports"), HasSubstr("neither true nor false")));
    SetEnvironment("CASTOR_LOAD_REPORTS", bad);
    EXPECT_THAT(ErrorOf({}), AllOf(HasSubstr(bad), HasSubstr("CASTOR_LOAD_REPORTS")));
    unsetenv("CASTOR_LOAD_REPORTS");
  }
  for (const char* yes : {"true", "True", "1", "on", "yes"}) {
    SetEnvironment("CASTOR_LOAD_REPORTS", yes);
    EXPECT_TRUE(ParseOrDie({}).load_reports) << yes;
    EXPECT_FALSE(ParseOrDie({"--no-load-reports"}).load_reports) << yes;
  }
  for (const char* no : {"false", "0", "off", "no"}) {
    EXPECT_FALSE(ParseOrDie({std::string("--load-reports=") + no}).load_reports) << no;
  }
  EXPECT_FALSE(ParseOrDie({"--load-reports", "--no-load-reports"}).load_reports)
      << "the last one wins";
}

TEST_F(OptionsTest, AnErrorNamesTheSourceOfTheValue) {
  SetEnvironment("CASTOR_MAX_BATCH_TOKENS", "none");
  EXPECT_THAT(ErrorOf({}), HasSubstr("CASTOR_MAX_BATCH_TOKENS"));
  unsetenv("CASTOR_MAX_BATCH_TOKENS");
  EXPECT_THAT(ErrorOf({"--config", WriteFile("\ndrain-delay = \"x\"\n")}),
              HasSubstr("from line 2 of the configuration file"));
  EXPECT_THAT(ErrorOf({"--drain-delay=x"}), Not(HasSubstr("configuration file")));
}

// Options about who gets in, and with what weight.

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
