// Options from flags, the environment and a file, and which of them wins.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

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

}  // namespace
}  // namespace castor::server
