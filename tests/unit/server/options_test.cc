#include "server/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/options/units.h"
#include "tests/support/words.h"
#include "tests/unit/server/options_fixture.h"

namespace castor::server {
namespace {

using std::chrono::microseconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(OptionsTest, NothingGivenMeansTheDefaults) {
  const ServerOptions options = ParseOrDie({});
  EXPECT_EQ(options.listen, "127.0.0.1:50051");
  EXPECT_EQ(options.metrics_listen, "127.0.0.1:9464");
  EXPECT_EQ(options.health_listen, "");
  EXPECT_EQ(options.max_message_bytes, MemoryShare(int64_t{256} << 20, 16));
  EXPECT_EQ(options.drain_deadline, std::chrono::seconds(30));
  EXPECT_EQ(options.engine.max_queued_time, std::chrono::seconds(30));
  EXPECT_EQ(options.engine.max_request_time, std::chrono::minutes(10));
  EXPECT_EQ(options.watchdog_timeout, std::chrono::seconds(60));
  EXPECT_EQ(options.engine.max_device_bytes, 0) << "what the device has decides";
  EXPECT_TRUE(options.reflection);
  EXPECT_FALSE(options.load_reports);
  EXPECT_FALSE(options.shared_memory) << "it hands out what this user can open";
  EXPECT_EQ(options.max_shared_memory_regions, 64);
  EXPECT_TRUE(options.engine.models.empty());
  EXPECT_EQ(options.engine.answer_cache, 0) << "answers of no one are kept";
  EXPECT_NE(options.engine.build, "") << "the cost model file is keyed by it";
}

TEST_F(OptionsTest, ProtocolsOfOthersAreAList) {
  EXPECT_EQ(ParseOrDie({}).protocols, (Protocols{.oip = true, .tei = true}));
  EXPECT_EQ(ParseOrDie({"--protocols", "tei"}).protocols, (Protocols{.oip = false, .tei = true}));
  EXPECT_EQ(ParseOrDie({"--protocols", "tei,oip"}).protocols, Protocols{});
  EXPECT_EQ(ParseOrDie({"--protocols", "none"}).protocols, (Protocols{false, false}));
  EXPECT_EQ(ParseOrDie({"--protocols", ""}).protocols, (Protocols{false, false}));
  for (const char* bad : {"http", "oip,", "OIP", ",", "oip tei", "none,oip"}) {
    EXPECT_NE(ErrorOf({"--protocols", bad}).find("--protocols"), std::string::npos) << bad;
  }
}

TEST_F(OptionsTest, FlagsOfTheModelRootNeedSomeoneWhoLoads) {
  EXPECT_THAT(ErrorOf({"--model-root=/tmp"}), HasSubstr("--model-root: needs --model-control"));
  EXPECT_THAT(ErrorOf({"--model-control=auto"}), HasSubstr("--model-control: needs --model-root"));
  EXPECT_THAT(ErrorOf({"--weights-budget=1GiB"}), HasSubstr("--weights-budget: needs"));
  EXPECT_THAT(ErrorOf({"--idle-unload=60s"}), HasSubstr("--idle-unload: needs"));
  EXPECT_THAT(ErrorOf({"--model-control=auto", "--model-root=/no/folder"}),
              HasSubstr("is not a folder"));
}

TEST_F(OptionsTest, TheFlagsOfTheAutomaticKernelAreCheckedByName) {
  const EngineOptions engine =
      ParseOrDie({"--fidelity-share", "0.25", "--cost-model-budget", "2s"}).engine;
  EXPECT_EQ(engine.fidelity_share, 0.25);
  EXPECT_EQ(engine.cost_model_budget, std::chrono::seconds(2));
  for (const char* bad : {"-0.1", "1.01", "nan", "half", "0.5x", ""}) {
    EXPECT_THAT(ErrorOf({std::string("--fidelity-share=") + bad}), HasSubstr("--fidelity-share"));
  }
  EXPECT_THAT(ErrorOf({"--cost-model-budget", "2m"}), HasSubstr("--cost-model-budget"));
}

TEST_F(OptionsTest, EveryKindOfFlagIsRead) {
  const ServerOptions options = ParseOrDie(testing::Words(
      "--listen [::1]:0 --metrics-listen=off --health-listen 0.0.0.0:50052 --device cuda:1 "
      "--max-message-bytes 64MiB --batch-delay=500us --max-batch-tokens 4096 --log-format json "
      "--log-level=debug --no-reflection --load-reports --drain-delay 5s --max-kept-bytes 0 "
      "--answer-cache 64MiB"));
  EXPECT_EQ(options.listen, "[::1]:0");
  EXPECT_EQ(options.metrics_listen, "");
  EXPECT_EQ(options.health_listen, "0.0.0.0:50052");
  EXPECT_EQ(options.engine.device, "cuda:1");
  EXPECT_EQ(options.max_message_bytes, 64 << 20);
  EXPECT_EQ(options.max_kept_bytes, 0);
  EXPECT_EQ(options.engine.max_cached_host_bytes, 0);
  EXPECT_EQ(options.engine.answer_cache, 64 << 20);
  EXPECT_EQ(options.engine.batch_delay, std::chrono::microseconds(500));
  EXPECT_EQ(options.engine.max_batch_tokens, 4096);
  EXPECT_EQ(options.log_format, LogFormat::kJson);
  EXPECT_EQ(options.log_level, LogLevel::kDebug);
  EXPECT_FALSE(options.reflection);
  EXPECT_TRUE(options.load_reports);
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
  EXPECT_EQ(ParseOrDie({}).trace.ca, "");
  SetEnvironment("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem");
  const TraceOptions trace =
      ParseOrDie({"--trace-endpoint=https://[::1]:4317", "--trace-sample", "0.5"}).trace;
  EXPECT_EQ(trace.endpoint, "[::1]:4317");
  EXPECT_TRUE(trace.tls);
  EXPECT_EQ(trace.ca, "ca.pem");
  EXPECT_EQ(trace.sample, 0.5);
}

TEST_F(OptionsTest, BadValuesAreRefusedWithFlagValueAndRange) {
  EXPECT_THAT(ErrorOf({"--max-batch-tokens", "0"}),
              AllOf(HasSubstr("--max-batch-tokens"), HasSubstr("'0'"), HasSubstr("out of range")));
  EXPECT_THAT(ErrorOf({"--max-batch-tokens", "12x"}), HasSubstr("whole number"));
  EXPECT_THAT(ErrorOf({"--max-batch-tokens", "99999999999999999999"}), HasSubstr("whole number"));
  EXPECT_THAT(ErrorOf({"--max-message-bytes", "3GiB"}), HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf({"--max-message-bytes", "many"}), HasSubstr("64MiB"));
  EXPECT_THAT(ErrorOf({"--drain-delay", "5"}), HasSubstr("duration"));
  EXPECT_THAT(ErrorOf({"--drain-delay", "1500us"}), HasSubstr("milliseconds"));
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

  const ServerOptions in_int8 = ParseOrDie({"--model", first, "--model-dtype=int8"});
  EXPECT_EQ(in_int8.engine.models[0].dtype, DType::kFloat32);
  EXPECT_TRUE(in_int8.engine.models[0].int8);
  EXPECT_FALSE(options.engine.models[0].int8);
}

TEST_F(OptionsTest, AdaptersBelongToAModel) {
  const std::string base = MakeFolder("base"), adapter = MakeFolder("a=b");
  const ServerOptions options =
      ParseOrDie({"--model", "org/base=" + base, "--model=other=" + base, "--adapter",
                  "org/base/query=" + adapter + ",org/base/passage=" + base});
  const auto& adapters = options.engine.models[0].adapters;
  ASSERT_EQ(adapters.size(), 2U);
  EXPECT_EQ(adapters[0], std::pair(std::string("query"), adapter));
  EXPECT_EQ(adapters[1].first, "passage");
  EXPECT_TRUE(options.engine.models[1].adapters.empty());
  for (const auto& [text, says] :
       {std::pair<std::string, const char*>{"query=" + adapter, "MODEL/TASK=DIR"},
        {"base/=" + adapter, "MODEL/TASK=DIR"},
        {"base/query", "MODEL/TASK=DIR"},
        {"=x", "MODEL/TASK=DIR"},
        {"bases/query=" + adapter, "names no --model"},
        {"base/query=" + adapter + "x", "is not of a directory"}}) {
    EXPECT_THAT(ErrorOf({"--model", base, "--adapter", text}), HasSubstr(says)) << text;
  }
}

// A link "minilm" to a folder "model" or a hash is served as minilm.
TEST_F(OptionsTest, AModelIsCalledWhatItsPathIsCalled) {
  const std::string folder = MakeFolder("0f3a9c"), link = folder_ + "/minilm";
  std::filesystem::create_directory_symlink("0f3a9c", link);
  const auto name_of = [](const std::string& path) {
    return ParseOrDie({"--model", path}).engine.models[0].name;
  };
  EXPECT_EQ(name_of(link), "minilm");
  EXPECT_EQ(name_of(link + "/"), "minilm");
  EXPECT_EQ(name_of(link + "/./"), "minilm");
  EXPECT_EQ(name_of(folder + "/../minilm"), "minilm");
  std::ofstream(folder + "/layers.safetensors");
  std::filesystem::create_symlink("layers.safetensors", folder + "/cast.safetensors");
  EXPECT_EQ(name_of(link + "/cast.safetensors"), "cast");
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  EXPECT_EQ(name_of("."), "0f3a9c");
  EXPECT_EQ(name_of("../minilm"), "minilm");
  std::filesystem::current_path(here);
}

// Existing clients send the hub's names; paths may hold a '=' themselves.
TEST_F(OptionsTest, ANameMayHaveSlashesAndADirectorySeveralNames) {
  const std::string a = MakeFolder("a"), odd = MakeFolder("b=c");
  const auto models =
      ParseOrDie({"--model", "BAAI/bge-m3=" + a, "--model", "bge=" + a + ",x/y/z=" + a, "--model",
                  "q=" + odd, "--tei-model", "BAAI/bge-m3"})
          .engine.models;
  ASSERT_EQ(models.size(), 4U);
  EXPECT_EQ(models[0].name, "BAAI/bge-m3");
  EXPECT_EQ(models[0].directory, a);
  EXPECT_EQ(models[1].name, "bge");
  EXPECT_EQ(models[1].directory, a);
  EXPECT_EQ(models[2].name, "x/y/z");
  EXPECT_EQ(models[3].directory, odd);
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  MakeFolder("in/d=e");
  EXPECT_THAT(ErrorOf({"--model", "in/d=e"}), HasSubstr("no valid name"));  // of its own: d=e
  EXPECT_EQ(ParseOrDie({"--model", "in/d=a"}).engine.models[0].name, "in/d");
  std::filesystem::current_path(here);
  for (const char* bad :
       {"/x=", "x//y=", "x/=", "../x=", "x/../y=", "x/./y=", "a b/c=", "x:y/z="}) {
    EXPECT_THAT(ErrorOf({"--model", bad + a}),
                AnyOf(HasSubstr("no valid name"), HasSubstr("cannot be opened")))
        << bad;
  }
  EXPECT_THAT(ErrorOf({"--model", "x/y=" + a, "--model", "x/y=" + odd}), HasSubstr("given twice"));
}

TEST_F(OptionsTest, AModelOfTheHubIsToBeFetchedFirst) {
  for (const char* flag : {"BAAI/bge-m3", "bge=BAAI/bge-m3", "x/y=BAAI/bge-m3"}) {
    EXPECT_THAT(ErrorOf({"--model", flag}), HasSubstr("castor fetch hf:BAAI/bge-m3 --to DIR"))
        << flag;
  }
  EXPECT_THAT(ErrorOf({"--model", "/models/bge-m3"}), Not(HasSubstr("castor fetch")));
}

TEST_F(OptionsTest, AMistypedFlagOrKeyIsAnsweredWithTheNearest) {
  EXPECT_THAT(ErrorOf({"--modle", "x"}), HasSubstr("did you mean --model?"));
  EXPECT_THAT(ErrorOf({"--modle=x"}), HasSubstr("did you mean --model?"));
  EXPECT_THAT(ErrorOf({"--max-que-tokens", "5"}), HasSubstr("did you mean --max-queued-tokens?"));
  EXPECT_THAT(ErrorOf({"--confg", "x"}), HasSubstr("did you mean --config?"));
  EXPECT_THAT(ErrorOf({"--quite-another-thing"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(ErrorOf({"--config", WriteFile("max-deadlin = \"1s\"\n")}),
              HasSubstr("did you mean max-deadline?"));
}

TEST_F(OptionsTest, BadModelsAreRefused) {
  const std::string a = MakeFolder("a");
  EXPECT_THAT(ErrorOf({"--model", folder_ + "/none"}), HasSubstr("cannot be opened: no such file"));
  EXPECT_THAT(ErrorOf({"--model", WriteFile("weights")}), HasSubstr("is a file: give its dir"));
  EXPECT_THAT(ErrorOf({"--model", "m=" + a, "--model", "m=" + a}), HasSubstr("given twice"));
  EXPECT_THAT(ErrorOf({"--model", "a b=" + a}), HasSubstr("no valid name"));
  EXPECT_THAT(ErrorOf({"--model", "=" + a}), HasSubstr("no valid name"));
  EXPECT_THAT(ErrorOf({"--config", WriteFile("model = \"/none\"\n")}),
              AllOf(HasSubstr("cannot be opened"), HasSubstr("line 1")));
  EXPECT_THAT(ErrorOf({"--model", "/a\nb\x1b[31m"}), HasSubstr("/a?b?[31m"));
  EXPECT_THAT(ErrorOf({"--model", a, "--tei-model", "b"}),
              HasSubstr("--tei-model: no --model has"));
  EXPECT_EQ(ParseOrDie({"--model", a, "--tei-model", "a"}).tei_model, "a");
}

TEST_F(OptionsTest, PredictedTimesAreBounded) {
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

TEST(ParseBytes, TakesPlainNumbersAndBothKindsOfUnits) {
  EXPECT_EQ(ParseBytes("0"), 0);
  EXPECT_EQ(ParseBytes("17"), 17);
  EXPECT_EQ(ParseBytes("17B"), 17);
  EXPECT_EQ(ParseBytes("64MiB"), 64 << 20);
  EXPECT_EQ(ParseBytes("64Mi"), 64 << 20);
  EXPECT_EQ(ParseBytes("64m"), 64 << 20);
  EXPECT_EQ(ParseBytes("2GB"), 2'000'000'000);
  EXPECT_EQ(ParseBytes("1.5KiB"), 1536);
  EXPECT_EQ(ParseBytes("9007199254740993"), 9007199254740993);  // not exact as a double
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "-1", "-0.5KiB", "1 MiB", "1XB", "1MiBs", "nan", "inf",
                           "0x10", "8388608TiB", "9223372036854775808", "1e3"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

TEST(ParseDuration, NeedsAUnitUnlessZero) {
  EXPECT_EQ(ParseDuration("0"), microseconds(0));
  EXPECT_EQ(ParseDuration("5ms"), microseconds(5000));
  EXPECT_EQ(ParseDuration("1.5s"), microseconds(1'500'000));
  EXPECT_EQ(ParseDuration("7us"), microseconds(7));
  EXPECT_EQ(ParseDuration("2m"), microseconds(120'000'000));
  EXPECT_EQ(ParseDuration("1h"), microseconds(int64_t{3'600'000'000}));
  for (const char* text : {"", "5", "ms", "-1s", "5 ms", "5mss", "1d", "99999999999999999h"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

TEST(Format, ReadsBackExactly) {
  EXPECT_EQ(FormatBytes(int64_t{256} << 20), "256MiB");
  EXPECT_EQ(FormatBytes(1 << 10), "1KiB");
  EXPECT_EQ(FormatBytes(1025), "1025B");
  EXPECT_EQ(FormatDuration(std::chrono::seconds(30)), "30s");
  EXPECT_EQ(FormatDuration(std::chrono::milliseconds(1500)), "1500ms");
  for (int64_t value : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1} << 40, INT64_MAX}) {
    EXPECT_EQ(ParseBytes(FormatBytes(value)), value);
    EXPECT_EQ(ParseDuration(FormatDuration(microseconds(value))), microseconds(value));
  }
}

}  // namespace
}  // namespace castor::server
