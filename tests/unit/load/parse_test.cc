#include "client/load/workload/parse.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "client/cli/command.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kClass[] = "[[class]]\nname = \"a\"\nkind = \"attend\"\n";

// The workload of one class with these keys besides.
Workload WithClass(const std::string& keys) { return ParseWorkload(kClass + keys, "w.toml"); }
Workload WithLoad(const std::string& keys) {
  return ParseWorkload("[load]\n" + keys + "\n" + kClass, "w.toml");
}

std::string ErrorOf(const std::string& toml) {
  try {
    ParseWorkload(toml, "w.toml");
  } catch (const cli::UsageError& error) {
    return error.what();
  }
  return "";
}

const AttendSpec& AttendOf(const Workload& workload) {
  return std::get<AttendSpec>(workload.classes.at(0).call);
}

class FileOf {
 public:
  explicit FileOf(const std::string& text)
      : path_(testing::TempDir() + "/castor_parse_test_" + std::to_string(getpid())) {
    std::ofstream(path_) << text;
  }
  ~FileOf() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ParseWorkload, AClassNeedsANameAndAKind) {
  const Workload workload = WithClass("");
  const ClassSpec defaults;
  const ClassSpec& spec = workload.classes.at(0);
  EXPECT_EQ(spec.name, "a");
  EXPECT_EQ(spec.weight, defaults.weight);
  EXPECT_EQ(spec.deadline, defaults.deadline);
  EXPECT_EQ(spec.payloads, defaults.payloads);
  EXPECT_EQ(AttendOf(workload).heads, AttendSpec().heads);
  EXPECT_EQ(workload.duration, Workload().duration);
  EXPECT_EQ(std::get<FlatRate>(std::get<OpenLoop>(workload.load).rate).rate, FlatRate().rate);
}

TEST(ParseWorkload, ReadsEveryLength) {
  EXPECT_EQ(std::get<FixedLength>(AttendOf(WithClass("lengths = 7")).lengths).length, 7);
  const auto uniform =
      std::get<UniformLength>(AttendOf(WithClass("lengths = {uniform = [3, 9]}")).lengths);
  EXPECT_EQ(uniform.least, 3);
  EXPECT_EQ(uniform.greatest, 9);
  const auto lognormal = std::get<LognormalLength>(
      AttendOf(WithClass("lengths = {lognormal = {median = 9.5, sigma = 2, min = 2, max = 77}}"))
          .lengths);
  EXPECT_EQ(lognormal.median, 9.5);
  EXPECT_EQ(lognormal.sigma, 2);
  EXPECT_EQ(lognormal.least, 2);
  EXPECT_EQ(lognormal.greatest, 77);
  EXPECT_EQ(std::get<EmpiricalLength>(AttendOf(WithClass("lengths = [5, 6, 5]")).lengths).lengths,
            (std::vector<int64_t>{5, 6, 5}));
  const auto mixture =
      std::get<LengthMixture>(AttendOf(WithClass("lengths = {mix = [{weight = 9, lengths = 64}, "
                                                 "{lengths = {uniform = [1, 2]}}]}"))
                                  .lengths);
  ASSERT_EQ(mixture.parts.size(), 2U);
  EXPECT_EQ(mixture.parts[0].weight, 9);
  EXPECT_EQ(std::get<FixedLength>(mixture.parts[0].of.at(0)).length, 64);
  EXPECT_EQ(mixture.parts[1].weight, 1);
  EXPECT_EQ(std::get<UniformLength>(mixture.parts[1].of.at(0)).greatest, 2);
  const FileOf file("12\r\n\n34\n56");
  EXPECT_EQ(std::get<EmpiricalLength>(
                AttendOf(WithClass("sequences = {file = \"" + file.path() + "\"}")).sequences)
                .lengths,
            (std::vector<int64_t>{12, 34, 56}));
}

TEST(ParseWorkload, ReadsEveryRate) {
  const auto rate = [](const std::string& keys) {
    return std::get<OpenLoop>(WithLoad(keys).load).rate;
  };
  EXPECT_EQ(std::get<FlatRate>(rate("rate = 2.5")).rate, 2.5);
  EXPECT_EQ(std::get<RampRate>(rate("ramp = {from = 0, to = 9}")).to, 9);
  EXPECT_EQ(std::get<StepRate>(rate("steps = [1, 0, 2.5]")).rates,
            (std::vector<double>{1, 0, 2.5}));
  const auto sine = std::get<SineRate>(rate("sine = {mean = 4, amplitude = 4, period = \"9s\"}"));
  EXPECT_EQ(sine.amplitude, 4);
  EXPECT_EQ(sine.period, seconds(9));
  const auto bursts = std::get<BurstRate>(
      rate("bursts = {base = 0, burst = 7, length = \"10ms\", period = \"20ms\"}"));
  EXPECT_EQ(bursts.base, 0);
  EXPECT_EQ(bursts.burst, 7);
  EXPECT_EQ(bursts.length, milliseconds(10));
}

TEST(ParseWorkload, ReadsEveryLoad) {
  const auto open =
      std::get<OpenLoop>(WithLoad("arrivals = \"gamma\"\nburstiness = 2\nmax-in-flight = 5").load);
  EXPECT_EQ(open.process, Process::kGamma);
  EXPECT_EQ(open.burstiness, 2);
  EXPECT_EQ(open.max_in_flight, 5);
  const auto closed = std::get<ClosedLoop>(
      WithLoad("arrivals = \"closed\"\ncallers = 9\nthink-time = \"3ms\"").load);
  EXPECT_EQ(closed.callers, 9);
  EXPECT_EQ(closed.think_time, milliseconds(3));
  const Workload workload = ParseWorkload(
      "[load]\narrivals = \"replay\"\nfile = \"t.jsonl\"\nspeed = 2\nmax-in-flight = 4\n"
      "[defaults]\ntenant = \"x\"\ninputs = \"structured\"\n",
      "w.toml");
  const auto replay = std::get<Replay>(workload.load);
  EXPECT_EQ(replay.file, "t.jsonl");
  EXPECT_EQ(replay.speed, 2);
  EXPECT_EQ(replay.max_in_flight, 4);
  EXPECT_EQ(replay.each.tenant, "x");
  EXPECT_EQ(std::get<AttendSpec>(replay.each.call).inputs, Inputs::kStructured);
  EXPECT_EQ(workload.duration.count(), 0);
  EXPECT_EQ(workload.warm_up.count(), 0);
}

TEST(ParseWorkload, ClassesTakeTheDefaults) {
  const Workload workload = ParseWorkload(
      "[defaults]\ndeadline = \"1s\"\npriority = \"low\"\nobjectives = [\"p99 <= 5ms\"]\n" +
          std::string(kClass) + "deadline = \"2s\"\nobjectives = []\n" +
          "[[class]]\nname = \"b\"\nkind = \"encode\"\npriority = \"high\"\n",
      "w.toml");
  EXPECT_EQ(workload.classes[0].deadline, seconds(2));
  EXPECT_EQ(workload.classes[0].priority, v1::LOW);
  EXPECT_TRUE(workload.classes[0].objective.empty());
  EXPECT_EQ(workload.classes[1].deadline, seconds(1));
  EXPECT_EQ(workload.classes[1].priority, v1::HIGH);
  EXPECT_EQ(workload.classes[1].objective.latencies.size(), 1U);
}

TEST(ParseWorkload, ReadsATokenFromAFile) {
  const FileOf file("secret\n");
  EXPECT_EQ(WithClass("token-file = \"" + file.path() + "\"").classes[0].token, "secret");
}

TEST(ParseWorkload, ReadsWorkloadsFromFiles) {
  const FileOf file(kClass);
  EXPECT_EQ(ReadWorkload(file.path()).classes.at(0).name, "a");
  EXPECT_THROW(ReadWorkload("/nowhere/w.toml"), cli::UsageError);
  EXPECT_THROW(ReadWorkload("/dev/zero"), cli::UsageError);
}

struct Bad {
  std::string toml, error;  // which the message must hold
};

void ExpectErrors(const std::vector<Bad>& cases) {
  for (const auto& [toml, error] : cases) {
    const std::string message = ErrorOf(toml);
    EXPECT_TRUE(message.starts_with("w.toml")) << toml << "\n" << message;
    EXPECT_NE(message.find(error), std::string::npos) << toml << "\n" << message;
  }
}

TEST(ParseWorkload, RefusesWhatIsNoWorkload) {
  const std::string kind = "[[class]]\nname = \"b\"\n";
  ExpectErrors({
      {"", "needs at least one [[class]]"},
      {"x = [", "line 1"},
      {"x = 1", "the workload has no key 'x'"},
      {"load = 1", "write [load]"},
      {"[class]\nname = \"a\"", "write [[class]]"},
      {"class = [1]", "must be [[class]], not 1"},
      {kind, "needs kind = \"attend\" or kind = \"encode\""},
      {kind + "kind = \"atend\"", "line 3: class 'b': kind must be one of attend, encode, not"},
      {"[[class]]\nkind = \"attend\"", "class 1: needs a name"},
      {std::string(kClass) + kClass, "line 5: class 'a': there is another class of this name"},
      {"[load]\narrivals = \"replay\"\nfile = \"f\"\n" + std::string(kClass),
       "a replay has no [[class]]"},
      {"[load]\narrivals = \"replay\"", "a replay needs a file"},
  });
}

TEST(ParseWorkload, RefusesUnknownKeysAndNamesTheNearest) {
  ExpectErrors({
      {std::string(kClass) + "wieght = 2",
       "line 4: class 'a' has no key 'wieght'. Did you mean "
       "'weight'?"},
      {std::string(kClass) + "model = \"m\"", "class 'a' has no key 'model'; it may have name"},
      {"[load]\nburstiness = 2\n" + std::string(kClass), "[load] has no key 'burstiness'"},
      {"[load]\nRate = 2\n" + std::string(kClass), "Did you mean 'rate'?"},
      {"[run]\nwarmup = \"1s\"\n" + std::string(kClass), "Did you mean 'warm-up'?"},
      {"[rum]\nseed = 1\n" + std::string(kClass), "Did you mean 'run'?"},
      {"[defaults]\nweight = 2\n" + std::string(kClass), "[defaults] has no key 'weight'"},
      {std::string(kClass) + "kernel = {name = \"vanilla\", clusters = 3}",
       "class 'a': kernel has no key 'clusters'"},
      {std::string(kClass) + "surrogate-tokens = 3", "has no key 'surrogate-tokens'"},
      {std::string(kClass) + "lengths = {gauss = [1, 2]}", "has no key 'gauss'"},
  });
}

TEST(ParseWorkload, RefusesValuesOutOfRange) {
  const std::vector<Bad> of_class = {
      {"weight = 0",
       "line 4: class 'a': weight must be a number above 0 and at most 1000000000, "
       "not 0"},
      {"weight = -3", "not -3"},
      {"weight = nan", "weight must be a number"},
      {"weight = inf", "weight must be a number"},
      {"weight = \"9\"", "weight must be a number"},
      {"cancel-share = 1.1", "cancel-share must be a number from 0 to 1, not 1.1"},
      {"cancel-share = 0.1\ncancel-after = \"60s\"", "must be below the deadline"},
      {"deadline = \"0s\"", "deadline must be a duration from \"1ms\" to \"24h\""},
      {"deadline = 5", "deadline must be a duration"},
      {"deadline = \"-5s\"", "deadline must be a duration"},
      {"priority = \"urgent\"", "one of default, low, normal, high, not"},
      {"tenant = \"a b\"", "tenant must be 1 to 64 letters"},
      {"token = \"\\u00e9\"", "a token is printable ASCII"},
      {"token = \"a\\nb\"", "token must be a string without control characters"},
      {"token = \"a\"\ntoken-file = \"b\"", "exclude each other"},
      {"token-file = \"/nowhere/token\"", "cannot open"},
      {"payloads = 0", "payloads must be a whole number from 1 to 65536, not 0"},
      {"payloads = 1.5", "payloads must be a whole number"},
      {"objectives = [\"p99 < 3ms\"]", "objective 'p99 < 3ms' is no objective"},
      {"objectives = \"p99 <= 3ms\"", "objectives must be an array of strings"},
      {"objectives = [1]", "objectives must be an array of strings"},
      {"heads = 0", "heads must be a whole number from 1"},
      {"heads = 9223372036854775807", "heads must be a whole number from 1"},
      {"value-dim = -1", "value-dim must be"},
      {"dtype = \"int8\"", "dtype must be one of float32, float16, bfloat16, not"},
      {"inputs = \"zero\"", "inputs must be one of gaussian, structured"},
      {"shared-memory = 1", "shared-memory must be true or false, not 1"},
      {"lengths = 0", "lengths must be a whole number from 1 to 1048576, not 0"},
      {"lengths = 1048577", "lengths must be a whole number from 1 to 1048576"},
      {"lengths = \"x\"", "lengths must be a whole number, an array of them, or one of"},
      {"lengths = {}", "lengths must be a whole number, an array of them, or one of"},
      {"lengths = []", "lengths must be an array of 1 to 100000 lengths"},
      {"lengths = [1, 0]", "lengths must be a whole number from 1"},
      {"lengths = {uniform = [9, 3]}", "uniform must be a whole number from 9 to 1048576, not 3"},
      {"lengths = {uniform = 9}", "uniform must be [least, greatest]"},
      {"lengths = {lognormal = {median = 0}}", "median must be a number above 0"},
      {"lengths = {lognormal = {sigma = 11}}", "sigma must be a number from 0 to 10"},
      {"lengths = {lognormal = {min = 9, max = 3}}", "min must be a whole number from 1 to 3"},
      {"lengths = {lognormal = 3}", "lognormal must be a table"},
      {"lengths = {mix = []}", "mix must be an array of 1 to 100 tables"},
      {"lengths = {mix = [{weight = 1}]}", "needs lengths"},
      {"lengths = {mix = [{weight = 0, lengths = 1}]}", "weight must be a number above 0"},
      {"lengths = {mix = [{lengths = {mix = [{lengths = {mix = [{lengths = {mix = [{lengths = "
       "{mix = [{lengths = 1}]}}]}}]}}]}}]}",
       "too deep"},
      {"lengths = {file = \"/nowhere/l\"}", "cannot open"},
      {"sequences = 4097", "sequences must be a whole number from 1 to 4096"},
      {"kernel = \"fast\"", "kernel must be one of vanilla, clustered"},
      {"kernel = {name = \"clustered\", clusters = 0}", "clusters must be"},
      {"kernel = {name = \"clustered\", query-clustering = \"space\"}",
       "query-clustering must be one of hash, query-space"},
      {"kernel = {name = \"clustered\", seed = -1}", "seed must be a whole number from 0"},
      {"kernel = {name = \"automatic\", allow = [\"fast\"]}", "'fast' is none"},
      {"kernel = {name = \"automatic\", max-relative-error = 2}", "max-relative-error must be"},
      {"kernel = {name = \"cast\", surrogates = \"s\", layer = \"l\"}", "exclude each other"},
      {"lengths = 1048576", "a message ends at 2 GiB"},
      {"lengths = 16384\npayloads = 100", "give it fewer payloads"},
  };
  std::vector<Bad> cases;
  for (const Bad& bad : of_class) cases.push_back({kClass + bad.toml, bad.error});
  ExpectErrors(cases);
  ExpectErrors(
      {{"[[class]]\nname = \"e\"\nkind = \"encode\"\ntext-file = \"f\"\nlengths = 3",
        "lengths are of generated texts"},
       {"[[class]]\nname = \"e\"\nkind = \"encode\"\noutput = \"tokens\"",
        "output must be one of default, token-embeddings, pooled, logits, scores, sparse"}});
}

TEST(ParseWorkload, RefusesLoadsThatCannotBe) {
  const std::vector<Bad> of_load = {
      {"arrivals = \"uniform\"", "line 2: [load]: arrivals must be one of constant, poisson"},
      {"rate = 0", "rate must be a number above 0 and at most 10000000, not 0"},
      {"rate = inf", "rate must be a number above 0"},
      {"rate = 1\nsteps = [1]", "rate and steps exclude each other"},
      {"ramp = {from = 0, to = 0}", "from and to are both 0"},
      {"ramp = {from = -1}", "from must be a number from 0"},
      {"steps = []", "steps must be an array of 1 to 10000 rates"},
      {"steps = [0, 0]", "steps are all 0"},
      {"steps = [1, nan]", "steps must be a number from 0"},
      {"sine = {mean = 3, amplitude = 4}", "amplitude must be a number from 0 to 3, not 4"},
      {"sine = {period = \"0s\"}", "period must be a duration"},
      {"bursts = {length = \"3s\", period = \"2s\"}", "length must be a duration"},
      {"bursts = {burst = 0}", "burst must be a number above 0"},
      {"arrivals = \"gamma\"\nburstiness = 0", "burstiness must be a number from 0.1 to 10"},
      {"max-in-flight = -1", "max-in-flight must be"},
      {"arrivals = \"closed\"\ncallers = 0", "callers must be a whole number from 1 to 100000"},
      {"arrivals = \"closed\"\nrate = 3", "[load] has no key 'rate'"},
      {"arrivals = \"closed\"\nthink-time = \"2h\"", "think-time must be a duration"},
      {"arrivals = \"replay\"\nfile = \"f\"\nspeed = 0", "speed must be a number from 0.001"},
  };
  std::vector<Bad> cases;
  for (const Bad& bad : of_load)
    cases.push_back({"[load]\n" + bad.toml + "\n" + kClass, bad.error});
  ExpectErrors(cases);
  ExpectErrors({{"[run]\nduration = \"0s\"\n" + std::string(kClass), "duration must be a duration"},
                {"[run]\nseed = -1\n" + std::string(kClass), "seed must be a whole number"},
                {"[run]\nseed = \"x\"\n" + std::string(kClass), "seed must be a whole number"}});
}

TEST(ParseWorkload, RefusesFilesOfLengths) {
  for (const std::string text :
       {"", "\n\n", "12\nx\n", "12\n0\n", "12 13\n", "99999999999999999999"}) {
    const FileOf file(text);
    const std::string message = ErrorOf(kClass + ("lengths = {file = \"" + file.path() + "\"}"));
    EXPECT_NE(message.find(file.path()), std::string::npos) << message;
  }
  const FileOf file("12\n-4\n");
  EXPECT_NE(ErrorOf(kClass + ("lengths = {file = \"" + file.path() + "\"}")).find("line 2 of"),
            std::string::npos);
}

}  // namespace
}  // namespace castor::load
