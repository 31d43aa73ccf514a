#include "server/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace castor::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Sets environment variables for one test and restores them afterwards; owns a scratch folder.
class OptionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "castor-options-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    std::filesystem::remove_all(folder_);
  }

  void SetEnvironment(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }

  std::string WriteFile(const std::string& text) {
    const std::string path = folder_ + "/castor.toml";
    std::ofstream(path) << text;
    return path;
  }

  std::string MakeFolder(const std::string& name) {
    std::filesystem::create_directories(folder_ + "/" + name);
    return folder_ + "/" + name;
  }

  static std::variant<ServerOptions, int> Parse(std::vector<std::string> flags) {
    std::vector<const char*> argv = {"castor-server"};
    for (const std::string& flag : flags) argv.push_back(flag.c_str());
    return ParseOptions(static_cast<int>(argv.size()), argv.data());
  }

  static ServerOptions ParseOrDie(std::vector<std::string> flags) {
    auto parsed = Parse(std::move(flags));
    if (std::holds_alternative<int>(parsed)) {
      ADD_FAILURE() << "refused with exit code " << std::get<int>(parsed);
      return {};
    }
    return std::get<ServerOptions>(std::move(parsed));
  }

  // The line printed for flags that must be refused.
  static std::string ErrorOf(std::vector<std::string> flags) {
    ::testing::internal::CaptureStderr();
    const auto parsed = Parse(std::move(flags));
    std::string line = ::testing::internal::GetCapturedStderr();
    const int* exit_code = std::get_if<int>(&parsed);
    EXPECT_TRUE(exit_code != nullptr && *exit_code == 2);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    return line;
  }

  std::string folder_;
  std::vector<std::string> set_;
};

TEST_F(OptionsTest, NothingGivenMeansTheDefaults) {
  const ServerOptions options = ParseOrDie({});
  const ServerOptions defaults;
  EXPECT_EQ(options.listen, "127.0.0.1:50051");
  EXPECT_EQ(options.metrics_listen, "127.0.0.1:9464");
  EXPECT_EQ(options.health_listen, "");
  EXPECT_EQ(options.max_message_bytes, MemoryShare(int64_t{256} << 20, 16));
  EXPECT_EQ(options.drain_deadline, std::chrono::seconds(30));
  EXPECT_EQ(options.watchdog_timeout, std::chrono::seconds(60));
  EXPECT_EQ(options.engine.max_batch_tokens, defaults.engine.max_batch_tokens);
  EXPECT_EQ(options.engine.max_queued_bytes, defaults.engine.max_queued_bytes);
  EXPECT_EQ(options.engine.max_device_bytes, 0) << "what the device has decides";
  EXPECT_TRUE(options.reflection);
  EXPECT_FALSE(options.channelz);
  EXPECT_FALSE(options.load_reports);
  EXPECT_EQ(options.record, "");
  EXPECT_EQ(options.record_max_bytes, 1 << 30);
  EXPECT_FALSE(options.shared_memory) << "it hands out what this user can open";
  EXPECT_EQ(options.max_shared_memory_regions, 64);
  EXPECT_TRUE(options.engine.models.empty());
  EXPECT_EQ(options.engine.fidelity_share, 0);
  EXPECT_EQ(options.engine.cost_model_budget, defaults.engine.cost_model_budget);
  EXPECT_NE(options.engine.build, "") << "the cost model file is keyed by it";
}

TEST_F(OptionsTest, TheCostModelHasAFileOnlyWhereOneIsNamed) {
  EXPECT_EQ(ParseOrDie({}).engine.cost_model_file, "");
  EXPECT_EQ(ParseOrDie({"--cost-model", "/x/costs"}).engine.cost_model_file, "/x/costs");
  SetEnvironment("CASTOR_COST_MODEL", "/y");
  EXPECT_EQ(ParseOrDie({}).engine.cost_model_file, "/y");
}

TEST_F(OptionsTest, SharedMemoryIsTurnedOnInEveryWay) {
  const ServerOptions flags =
      ParseOrDie({"--shared-memory", "--max-shared-memory-regions", "1000"});
  EXPECT_TRUE(flags.shared_memory);
  EXPECT_EQ(flags.max_shared_memory_regions, 1000);
  const std::string file = WriteFile("shared-memory = true\nmax-shared-memory-regions = 7\n");
  EXPECT_TRUE(ParseOrDie({"--config", file}).shared_memory);
  EXPECT_EQ(ParseOrDie({"--config", file}).max_shared_memory_regions, 7);
  EXPECT_FALSE(ParseOrDie({"--config", file, "--no-shared-memory"}).shared_memory);
  SetEnvironment("CASTOR_SHARED_MEMORY", "true");
  SetEnvironment("CASTOR_MAX_SHARED_MEMORY_REGIONS", "8");
  EXPECT_TRUE(ParseOrDie({}).shared_memory);
  EXPECT_EQ(ParseOrDie({}).max_shared_memory_regions, 8);
  for (const char* bad : {"0", "-1", "65537", "many"}) {
    EXPECT_THAT(ErrorOf({"--max-shared-memory-regions", bad}),
                HasSubstr("--max-shared-memory-regions"));
  }
}

TEST_F(OptionsTest, TheFlagsOfTheAutomaticKernelAreCheckedByName) {
  const EngineOptions engine = ParseOrDie({"--fidelity-share", "0.25", "--fidelity-sample-rows=64",
                                           "--cost-model-budget", "2s"})
                                   .engine;
  EXPECT_EQ(engine.fidelity_share, 0.25);
  EXPECT_EQ(engine.fidelity_sample_rows, 64);
  EXPECT_EQ(engine.cost_model_budget, std::chrono::seconds(2));
  for (const char* bad : {"-0.1", "1.01", "nan", "half", "0.5x", ""}) {
    EXPECT_THAT(ErrorOf({std::string("--fidelity-share=") + bad}), HasSubstr("--fidelity-share"));
  }
  for (const char* bad : {"0", "1025", "1.5"}) {
    EXPECT_THAT(ErrorOf({"--fidelity-sample-rows", bad}), HasSubstr("--fidelity-sample-rows"));
  }
  EXPECT_THAT(ErrorOf({"--cost-model-budget", "2m"}), HasSubstr("--cost-model-budget"));
}

TEST_F(OptionsTest, EveryKindOfFlagIsRead) {
  const ServerOptions options = ParseOrDie({"--listen",
                                            "[::1]:0",
                                            "--metrics-listen=off",
                                            "--health-listen",
                                            "0.0.0.0:50052",
                                            "--device",
                                            "cuda:1",
                                            "--max-message-bytes",
                                            "64MiB",
                                            "--batch-delay=500us",
                                            "--max-batch-tokens",
                                            "4096",
                                            "--log-format",
                                            "json",
                                            "--log-level=debug",
                                            "--no-reflection",
                                            "--channelz",
                                            "--load-reports",
                                            "--drain-delay",
                                            "5s",
                                            "--max-kept-bytes",
                                            "0",
                                            "--record",
                                            "r.jsonl",
                                            "--record-max-bytes",
                                            "5MiB"});
  EXPECT_EQ(options.listen, "[::1]:0");
  EXPECT_EQ(options.metrics_listen, "");
  EXPECT_EQ(options.health_listen, "0.0.0.0:50052");
  EXPECT_EQ(options.engine.device, "cuda:1");
  EXPECT_EQ(options.max_message_bytes, 64 << 20);
  EXPECT_EQ(options.max_kept_bytes, 0);
  EXPECT_EQ(options.engine.batch_delay, std::chrono::microseconds(500));
  EXPECT_EQ(options.engine.max_batch_tokens, 4096);
  EXPECT_EQ(options.log_format, LogFormat::kJson);
  EXPECT_EQ(options.log_level, LogLevel::kDebug);
  EXPECT_FALSE(options.reflection);
  EXPECT_TRUE(options.channelz);
  EXPECT_TRUE(options.load_reports);
  EXPECT_EQ(options.record, "r.jsonl");
  EXPECT_EQ(options.record_max_bytes, 5 << 20);
  EXPECT_EQ(options.drain_delay, std::chrono::seconds(5));
}

TEST_F(OptionsTest, TracesGoNowhereUnlessACollectorIsNamed) {
  EXPECT_EQ(ParseOrDie({}).trace.endpoint, "");
  EXPECT_EQ(ParseOrDie({}).trace.sample, 0.01);
  EXPECT_EQ(ParseOrDie({"--trace-endpoint", "off"}).trace.endpoint, "");
  for (const char* plain : {"otel:4317", "http://otel:4317"}) {
    const TraceOptions trace = ParseOrDie({"--trace-endpoint", plain}).trace;
    EXPECT_EQ(trace.endpoint, "otel:4317");
    EXPECT_FALSE(trace.tls);
  }
  const TraceOptions trace =
      ParseOrDie({"--trace-endpoint=https://[::1]:4317", "--trace-ca", "ca.pem", "--trace-sample",
                  "0.5", "--trace-max-queued-spans", "100"})
          .trace;
  EXPECT_EQ(trace.endpoint, "[::1]:4317");
  EXPECT_TRUE(trace.tls);
  EXPECT_EQ(trace.ca, "ca.pem");
  EXPECT_EQ(trace.sample, 0.5);
  EXPECT_EQ(trace.max_queued_spans, 100);
}

TEST_F(OptionsTest, TheWatchdogsPatienceIsAnOptionLikeOthers) {
  EXPECT_EQ(ParseOrDie({"--watchdog-timeout", "5m"}).watchdog_timeout, std::chrono::minutes(5));
  EXPECT_EQ(ParseOrDie({"--config", WriteFile("watchdog-timeout = \"2m\"\n")}).watchdog_timeout,
            std::chrono::minutes(2));
  SetEnvironment("CASTOR_WATCHDOG_TIMEOUT", "0s");
  EXPECT_EQ(ParseOrDie({}).watchdog_timeout, std::chrono::seconds(0));
  EXPECT_THAT(ErrorOf({"--watchdog-timeout", "60"}), HasSubstr("--watchdog-timeout"));
}

TEST_F(OptionsTest, TheHealthPortIsAnOptionLikeOthers) {
  EXPECT_EQ(ParseOrDie({"--config", WriteFile("health-listen = \"[::]:1\"\n")}).health_listen,
            "[::]:1");
  SetEnvironment("CASTOR_HEALTH_LISTEN", "127.0.0.1:2");
  EXPECT_EQ(ParseOrDie({}).health_listen, "127.0.0.1:2");
  EXPECT_EQ(ParseOrDie({"--health-listen", "off"}).health_listen, "");
  EXPECT_THAT(ErrorOf({"--health-listen", "50052"}), HasSubstr("--health-listen"));
  EXPECT_THAT(ErrorOf({"--health-listen", "unix:/tmp/s"}), HasSubstr("--health-listen"));
}

TEST_F(OptionsTest, FlagsWinOverEnvironmentWhichWinsOverFile) {
  const std::string file = WriteFile(
      "max-batch-tokens = 1001\nmax-batch-requests = 11\nmax-sequences = 101\nchannelz = true\n"
      "max-message-bytes = \"1MiB\"\n");
  SetEnvironment("CASTOR_MAX_BATCH_REQUESTS", "12");
  SetEnvironment("CASTOR_MAX_SEQUENCES", "102");
  SetEnvironment("CASTOR_REFLECTION", "false");
  const ServerOptions options = ParseOrDie({"--config", file, "--max-sequences", "103"});
  EXPECT_EQ(options.engine.max_batch_tokens, 1001);  // file alone
  EXPECT_EQ(options.engine.max_batch_requests, 12);  // environment over file
  EXPECT_EQ(options.engine.max_sequences, 103);      // flag over both
  EXPECT_EQ(options.max_message_bytes, 1 << 20);
  EXPECT_TRUE(options.channelz);
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
  EXPECT_THAT(error("model = [1]"), HasSubstr("no string"));
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
  EXPECT_THAT(ErrorOf({"--config", pipe}), HasSubstr("pipe.toml: is no regular file"));
  EXPECT_THAT(ErrorOf({"--config", folder_}), HasSubstr("is no regular file"));
  EXPECT_THAT(ErrorOf({"--config", "/dev/zero"}), HasSubstr("is no regular file"));
  EXPECT_THAT(ErrorOf({"--config", ""}), HasSubstr("No such file"));
  EXPECT_THAT(ErrorOf({"--config", WriteFile(std::string((1 << 20) + 1, '#'))}),
              HasSubstr("larger than 1 MiB"));
}

TEST_F(OptionsTest, FlagsAreTrueOrFalseWhereverTheyComeFrom) {
  for (const char* bad : {"7", "-1", "maybe", "t", "truefalse"}) {
    EXPECT_THAT(ErrorOf({std::string("--channelz=") + bad}),
                AllOf(HasSubstr("--channelz"), HasSubstr("neither true nor false")));
    SetEnvironment("CASTOR_CHANNELZ", bad);
    EXPECT_THAT(ErrorOf({}), AllOf(HasSubstr(bad), HasSubstr("CASTOR_CHANNELZ")));
    unsetenv("CASTOR_CHANNELZ");
  }
  for (const char* yes : {"true", "True", "1", "on", "yes"}) {
    SetEnvironment("CASTOR_CHANNELZ", yes);
    EXPECT_TRUE(ParseOrDie({}).channelz) << yes;
    EXPECT_FALSE(ParseOrDie({"--no-channelz"}).channelz) << yes;
  }
  for (const char* no : {"false", "0", "off", "no"}) {
    EXPECT_FALSE(ParseOrDie({std::string("--channelz=") + no}).channelz) << no;
  }
  EXPECT_FALSE(ParseOrDie({"--channelz", "--no-channelz"}).channelz) << "the last one wins";
}

TEST_F(OptionsTest, BadValuesAreRefusedWithFlagValueAndRange) {
  EXPECT_THAT(ErrorOf({"--max-batch-tokens", "0"}),
              AllOf(HasSubstr("--max-batch-tokens"), HasSubstr("'0'"), HasSubstr("out of range")));
  EXPECT_THAT(ErrorOf({"--max-batch-tokens", "12x"}), HasSubstr("whole number"));
  EXPECT_THAT(ErrorOf({"--max-batch-tokens", "99999999999999999999"}), HasSubstr("whole number"));
  EXPECT_THAT(ErrorOf({"--max-message-bytes", "3GiB"}), HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf({"--max-message-bytes", "many"}), HasSubstr("64MiB"));
  EXPECT_THAT(ErrorOf({"--drain-delay", "5"}), HasSubstr("duration"));
  EXPECT_THAT(ErrorOf({"--drain-delay", "1500us"}), HasSubstr("1ms"));
  EXPECT_THAT(ErrorOf({"--device", "tpu"}), HasSubstr("auto, cpu, cuda"));
  EXPECT_THAT(ErrorOf({"--device", "cuda:x"}), HasSubstr("cuda:N"));
  EXPECT_THAT(ErrorOf({"--log-format", "xml"}), HasSubstr("human, json"));
  EXPECT_THAT(ErrorOf({"--listen", "off"}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(ErrorOf({"--listen", "localhost:70000"}), HasSubstr("65535"));
  EXPECT_THAT(ErrorOf({"--listen", "::1:50051"}), HasSubstr("brackets"));
  EXPECT_THAT(ErrorOf({"--lissen", "x"}), HasSubstr("--lissen"));
  EXPECT_THAT(ErrorOf({"stray"}), HasSubstr("stray"));
  EXPECT_THAT(ErrorOf({"--max-batch-tokens"}), HasSubstr("--max-batch-tokens"));
}

// 4096 used to pass here and then fail in the engine.
TEST_F(OptionsTest, ThreadsAreBoundedAsTheEngineBoundsThem) {
  EXPECT_EQ(ParseOrDie({"--cpu-threads", "1024"}).engine.cpu_threads, 1024);
  EXPECT_THAT(ErrorOf({"--cpu-threads", "1025"}), HasSubstr("out of range (0 to 1024)"));
  EXPECT_THAT(ErrorOf({"--cpu-threads", "4096"}), HasSubstr("--cpu-threads"));
}

TEST_F(OptionsTest, AnErrorNamesTheSourceOfTheValue) {
  SetEnvironment("CASTOR_MAX_BATCH_TOKENS", "none");
  EXPECT_THAT(ErrorOf({}), HasSubstr("CASTOR_MAX_BATCH_TOKENS"));
  unsetenv("CASTOR_MAX_BATCH_TOKENS");
  EXPECT_THAT(ErrorOf({"--config", WriteFile("\ndrain-delay = \"x\"\n")}),
              HasSubstr("from line 2 of the configuration file"));
  EXPECT_THAT(ErrorOf({"--drain-delay=x"}), Not(HasSubstr("configuration file")));
}

TEST_F(OptionsTest, ModelsTakeTheirNameFromTheFlagOrTheDirectory) {
  const std::string first = MakeFolder("all-MiniLM-L6-v2");
  const std::string second = MakeFolder("other");
  const ServerOptions options =
      ParseOrDie({"--model", first + "/", "--model=mini=" + second, "--model-dtype", "bfloat16"});
  ASSERT_EQ(options.engine.models.size(), 2u);
  EXPECT_EQ(options.engine.models[0].name, "all-MiniLM-L6-v2");
  EXPECT_EQ(options.engine.models[0].directory, first + "/");
  EXPECT_EQ(options.engine.models[1].name, "mini");
  EXPECT_EQ(options.engine.models[1].directory, second);
  EXPECT_EQ(options.engine.models[1].dtype, DType::kBFloat16);
}

TEST_F(OptionsTest, ModelsComeFromEnvironmentAndFileToo) {
  const std::string a = MakeFolder("a");
  const std::string b = MakeFolder("b");
  const std::string file = WriteFile("model = [\"x=" + a + "\", \"y=" + b + "\"]\n");
  EXPECT_EQ(ParseOrDie({"--config", file}).engine.models.size(), 2u);
  SetEnvironment("CASTOR_MODEL", "p=" + a + ",q=" + b);
  const ServerOptions options = ParseOrDie({"--config", file});
  ASSERT_EQ(options.engine.models.size(), 2u);
  EXPECT_EQ(options.engine.models[0].name, "p");
  EXPECT_EQ(options.engine.models[1].name, "q");
}

TEST_F(OptionsTest, BadModelsAreRefused) {
  const std::string a = MakeFolder("a");
  EXPECT_THAT(ErrorOf({"--model", folder_ + "/none"}), HasSubstr("no directory"));
  EXPECT_THAT(ErrorOf({"--model", "m=" + a, "--model", "m=" + a}), HasSubstr("given twice"));
  EXPECT_THAT(ErrorOf({"--model", "a b=" + a}), HasSubstr("no valid name"));
  EXPECT_THAT(ErrorOf({"--model", "=" + a}), HasSubstr("no valid name"));
  EXPECT_THAT(ErrorOf({"--config", WriteFile("model = \"/none\"\n")}),
              AllOf(HasSubstr("no directory"), HasSubstr("line 1")));
  EXPECT_THAT(ErrorOf({"--model", "/a\nb\x1b[31m"}), HasSubstr("/a?b?[31m"));
}

TEST_F(OptionsTest, PredictedTimesAreBounded) {
  const ServerOptions defaults = ParseOrDie({});
  EXPECT_EQ(defaults.engine.max_queued_time, std::chrono::seconds(30));
  EXPECT_EQ(defaults.engine.max_request_time, std::chrono::minutes(10));
  const ServerOptions options =
      ParseOrDie({"--max-queued-time", "1500ms", "--max-request-time=2m"});
  EXPECT_EQ(options.engine.max_queued_time, std::chrono::milliseconds(1500));
  EXPECT_EQ(options.engine.max_request_time, std::chrono::minutes(2));
  EXPECT_EQ(ParseOrDie({"--max-queued-time", "24h"}).engine.max_queued_time,
            std::chrono::hours(24));
  for (const char* flag : {"--max-queued-time", "--max-request-time"}) {
    for (const char* bad : {"0ms", "0s", "500us", "25h", "30", "-1s", "long", ""}) {
      EXPECT_THAT(ErrorOf({std::string(flag) + "=" + bad}), HasSubstr(flag)) << bad;
    }
  }
  const std::string file = WriteFile("max-request-time = \"5s\"\nmax-queued-time = \"6s\"\n");
  EXPECT_EQ(ParseOrDie({"--config", file}).engine.max_request_time, std::chrono::seconds(5));
  SetEnvironment("CASTOR_MAX_QUEUED_TIME", "7s");
  EXPECT_EQ(ParseOrDie({"--config", file}).engine.max_queued_time, std::chrono::seconds(7));
}

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
  const ServerOptions options = ParseOrDie(
      {"--tls-certificate=c", "--tls-key=k", "--tls-client-ca=a", "--tls-min-version=1.3",
       "--auth-tokens=t", "--metrics-tls", "--metrics-auth", "--listen=0.0.0.0:1",
       "--metrics-listen=0.0.0.0:2", "--first-request-timeout=5s"});
  EXPECT_EQ(options.access.tls.certificate, "c");
  EXPECT_EQ(options.access.tls.key, "k");
  EXPECT_EQ(options.access.tls.client_ca, "a");
  EXPECT_EQ(options.access.tls_min_version, TlsVersion::k13);
  EXPECT_EQ(options.access.callers, "t");
  EXPECT_TRUE(options.access.metrics_tls && options.access.metrics_callers);
  EXPECT_EQ(options.first_request_timeout, std::chrono::seconds(5));
  EXPECT_FALSE(ParseOrDie({}).access.tls.on());
  EXPECT_FALSE(ParseOrDie({}).access.asks());
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

TEST_F(OptionsTest, HelpIsGroupedAndSuccessful) {
  ::testing::internal::CaptureStdout();
  const auto parsed = Parse({"--help"});
  const std::string help = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(std::holds_alternative<int>(parsed));
  EXPECT_EQ(std::get<int>(parsed), 0);
  for (const char* group : {"Network:", "Models:", "Device:", "Batching:", "Limits:", "Lifecycle:",
                            "Observability:", "CASTOR_MAX_BATCH_TOKENS", "30s"}) {
    EXPECT_THAT(help, HasSubstr(group));
  }
}

TEST_F(OptionsTest, VersionIsPrinted) {
  ::testing::internal::CaptureStdout();
  const auto parsed = Parse({"--version"});
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("castor-server 0."));
  ASSERT_TRUE(std::holds_alternative<int>(parsed));
  EXPECT_EQ(std::get<int>(parsed), 0);
}

}  // namespace
}  // namespace castor::server
