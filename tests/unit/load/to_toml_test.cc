#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "client/load/workload/objective.h"
#include "client/load/workload/parse.h"
#include "tests/unit/load/seeds.h"

namespace castor::load {
namespace {

using std::chrono::nanoseconds;

// Everything that a workload holds, one value after the other: equal texts are equal workloads. It
// shares nothing with ToToml.
class Dump {
 public:
  explicit Dump(const Workload& workload) {
    text_.precision(17);
    All(workload.duration.count(), workload.warm_up.count(), workload.seed);
    Of(workload.load);
    for (const ClassSpec& spec : workload.classes) Of(spec);
  }
  std::string text() const { return text_.str(); }

 private:
  template <typename... T>
  void All(const T&... values) {
    ((text_ << values << '|'), ...);
  }
  template <typename T>
  void Each(const std::vector<T>& values) {
    text_ << '[';
    for (const T& value : values) text_ << value << ',';
    text_ << ']';
  }
  template <typename... T>
  void Of(const std::variant<T...>& value) {
    text_ << '\n' << value.index() << ':';
    std::visit([this](const auto& held) { this->Of(held); }, value);
  }
  void Of(const FixedLength& l) { All(l.length); }
  void Of(const UniformLength& l) { All(l.least, l.greatest); }
  void Of(const LognormalLength& l) { All(l.median, l.sigma, l.least, l.greatest); }
  void Of(const EmpiricalLength& l) { Each(l.lengths); }
  void Of(const LengthMixture& l) {
    for (const auto& part : l.parts) {
      All(part.weight);
      Of(part.of.at(0));
    }
  }
  void Of(const FlatRate& r) { All(r.rate); }
  void Of(const RampRate& r) { All(r.from, r.to); }
  void Of(const StepRate& r) { Each(r.rates); }
  void Of(const SineRate& r) { All(r.mean, r.amplitude, r.period.count()); }
  void Of(const BurstRate& r) { All(r.base, r.burst, r.length.count(), r.period.count()); }
  void Of(const OpenLoop& l) {
    All(static_cast<int>(l.process), l.burstiness, l.max_in_flight);
    Of(l.rate);
  }
  void Of(const ClosedLoop& l) { All(l.callers, l.think_time.count()); }
  void Of(const Replay& l) {
    All(l.file, l.speed, l.max_in_flight);
    Of(l.each);
  }
  void Of(const cli::KernelFlags& k) {
    All(k.kernel, k.causal, k.clusters, k.iterations, k.bits, k.hash_bias, k.query_clustering,
        k.kernel_seed, k.topk, k.rest_mass, k.surrogates, k.layer, k.gate, k.clustering,
        k.cluster_size, k.attention_function, k.gate_temperature, k.head_clustering,
        k.max_relative_error, k.min_cosine);
    Each(k.allowed);
  }
  void Of(const AttendSpec& a) {
    Of(a.lengths);
    Of(a.sequences);
    All(a.heads, a.head_dim, a.value_dim, a.dtype, static_cast<int>(a.inputs), a.surrogate_tokens);
    Of(a.kernel);
  }
  void Of(const EncodeSpec& e) {
    All(e.model, e.text_file, e.output);
    Of(e.lengths);
    Of(e.sequences);
    Of(e.kernel);
  }
  void Of(const ClassSpec& c) {
    All(c.name, c.weight, c.priority, c.deadline.count(), c.tenant, c.token, c.cancel_share,
        c.cancel_after.count(), c.payloads, c.shared_memory);
    for (const LatencyGoal& goal : c.objective.latencies) All(goal.quantile, goal.limit.count());
    All(c.objective.max_error_share.value_or(-1));
    Of(c.call);
  }

  std::ostringstream text_;
};

// Random workloads of every kind, within what parsing allows.
class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  Workload Make() {
    Workload workload;
    workload.duration = Time(10'000'000, 3'600'000'000'000);
    workload.warm_up = Time(0, 60'000'000'000);
    workload.seed = random_() >> Whole(0, 63);
    const int64_t kind = Whole(0, 5);
    if (kind == 0) {
      workload.load = ClosedLoop{Whole(1, 100), Time(0, 1'000'000'000)};
    } else if (kind == 1) {
      Replay replay;
      replay.file = Name();
      replay.speed = Real(0.001, 1000);
      replay.max_in_flight = Whole(0, 9);
      Common(replay.each, std::get<AttendSpec>(replay.each.call));
      workload.load = replay;
      if (Coin()) workload.duration = nanoseconds(0);
      return workload;
    } else {
      OpenLoop open{.process = static_cast<Process>(kind % 3), .rate = MakeRate()};
      if (open.process == Process::kGamma) open.burstiness = Real(0.1, 10);
      open.max_in_flight = Whole(0, 5);
      workload.load = open;
    }
    const int64_t classes = Whole(1, 4);
    for (int64_t i = 0; i < classes; ++i) workload.classes.push_back(MakeClass(i));
    return workload;
  }

 private:
  bool Coin() { return Whole(0, 1) == 1; }
  int64_t Whole(int64_t least, int64_t greatest) {
    return std::uniform_int_distribution<int64_t>(least, greatest)(random_);
  }
  double Real(double least, double greatest) {
    return std::uniform_real_distribution<double>(least, greatest)(random_);
  }
  nanoseconds Time(int64_t least, int64_t greatest) {
    const int64_t unit = Coin() ? 1 : 10'000'000;
    return nanoseconds(std::max(least, Whole(least, greatest) / unit * unit));
  }
  std::string Name() {
    const char* const names[] = {"a", "with \"quotes\" and \\", "\u00e9\u4e2d #", "[x] = 'y'"};
    return names[Whole(0, 3)];
  }

  Length MakeLength(int64_t greatest, int depth = 0) {
    switch (Whole(0, depth < 2 ? 4 : 3)) {
      case 0:
        return FixedLength{Whole(1, greatest)};
      case 1: {
        const int64_t least = Whole(1, greatest);
        return UniformLength{least, Whole(least, greatest)};
      }
      case 2: {
        const int64_t least = Whole(1, greatest);
        return LognormalLength{Real(0.1, 100), Real(0, 3), least, Whole(least, greatest)};
      }
      case 3:
        return EmpiricalLength{{Whole(1, greatest), Whole(1, greatest)}};
      default: {
        LengthMixture mixture;
        for (int i = 0; i < 3; ++i) {
          mixture.parts.push_back({Real(0.1, 9), {MakeLength(greatest, depth + 1)}});
        }
        return mixture;
      }
    }
  }

  Rate MakeRate() {
    switch (Whole(0, 4)) {
      case 0:
        return FlatRate{Real(0.001, 1e6)};
      case 1:
        return RampRate{Coin() ? 0 : Real(0, 9), Real(0.1, 1e5)};
      case 2:
        return StepRate{{Real(0.1, 9), 0, Real(0, 1e-6)}};
      case 3: {
        const double mean = Real(0.1, 9);
        return SineRate{mean, Real(0, mean), Time(1'000'000, 3'600'000'000'000)};
      }
      default: {
        const nanoseconds length = Time(1, 1'000'000'000);
        return BurstRate{Real(0, 9), Real(0.1, 9), length, length + Time(1'000'000, 5'000'000'000)};
      }
    }
  }

  cli::KernelFlags MakeKernel() {
    cli::KernelFlags kernel;
    const std::string names[] = {"",     "vanilla",  "clustered", "improved-clustered",
                                 "cast", "automatic"};
    kernel.kernel = names[Whole(0, 5)];
    if (kernel.exact()) kernel.causal = Coin();
    if (kernel.kernel.ends_with("clustered")) {
      kernel.clusters = static_cast<int32_t>(Whole(0, 65536));
      kernel.iterations = static_cast<int32_t>(Whole(0, 9));
      kernel.bits = static_cast<int32_t>(Whole(0, 64));
      kernel.hash_bias = Coin();
      if (Coin()) kernel.query_clustering = Coin() ? "hash" : "query-space";
      kernel.kernel_seed = Coin() ? 0 : random_();
    }
    if (kernel.kernel == "improved-clustered") {
      kernel.topk = static_cast<int32_t>(Whole(0, 1024));
      if (Coin()) kernel.rest_mass = Coin() ? "centroid" : "query";
    }
    if (kernel.kernel == "cast") {
      (Coin() ? kernel.surrogates : kernel.layer) = Name();
      if (Coin()) kernel.gate = Name();
      if (Coin()) kernel.clustering = "single-assignment";
      if (Coin()) kernel.attention_function = "laplace";
      if (Coin()) kernel.gate_temperature = "none";
      if (Coin()) kernel.head_clustering = "per-head";
      kernel.cluster_size = static_cast<int32_t>(Whole(0, 99));
    }
    if (kernel.kernel == "automatic") {
      if (Coin()) kernel.allowed = {"cast", "vanilla"};
      kernel.max_relative_error = Coin() ? 0 : Real(0, 1);
      kernel.min_cosine = Coin() ? 0 : Real(0, 1);
    }
    return kernel;
  }

  // `attend` is the class's call, or where its keys are kept.
  void Common(ClassSpec& spec, AttendSpec& attend) {
    spec.priority = static_cast<v1::Priority>(Whole(0, 3));
    spec.deadline = Time(1'000'000'000, 86'400'000'000'000);
    if (Coin()) spec.tenant = "tenant-1";
    if (Coin()) spec.token = "a\"b\\c";
    if (Coin()) spec.cancel_share = Real(0, 1);
    if (Coin()) spec.cancel_after = Time(0, 999'999'999);
    if (Coin()) {
      spec.objective.latencies = {{Real(0.5, 0.9), Time(1, 1'000'000'000)},
                                  {Real(0.91, 1), Time(1, 1'000'000'000)}};
    }
    if (Coin()) spec.objective.max_error_share = Real(0, 1);
    attend.inputs = static_cast<Inputs>(Whole(0, 1));
  }

  ClassSpec MakeClass(int64_t number) {
    ClassSpec spec;
    spec.weight = Real(0.001, 100);
    spec.payloads = Whole(1, 9);
    if (Coin()) {
      AttendSpec attend;
      attend.lengths = MakeLength(100);
      attend.sequences = MakeLength(4);
      attend.heads = Whole(1, 16);
      attend.head_dim = Whole(1, 128);
      attend.value_dim = Whole(0, 128);
      attend.dtype = static_cast<v1::DataType>(Whole(1, 3));
      attend.kernel = MakeKernel();
      if (attend.kernel.kernel == "cast") attend.surrogate_tokens = Whole(1, 99);
      Common(spec, attend);
      spec.shared_memory = Coin();
      spec.call = attend;
    } else {
      AttendSpec unused;
      Common(spec, unused);
      EncodeSpec encode;
      encode.model = Coin() ? "" : Name();
      if (Coin()) {
        encode.text_file = Name();
      } else {
        encode.lengths = MakeLength(100);
      }
      encode.sequences = MakeLength(9);
      encode.output = static_cast<v1::EncodeOutput>(Whole(0, 5));
      encode.kernel = MakeKernel();
      spec.call = encode;
    }
    spec.name = Name() + std::to_string(number);
    return spec;
  }

  std::mt19937_64 random_;
};

TEST(ToToml, ParsesBackToTheSame) {
  Maker maker(FreshSeed());
  for (int i = 0; i < 500; ++i) {
    const Workload workload = maker.Make();
    const std::string toml = ToToml(workload);
    Workload parsed;
    ASSERT_NO_THROW(parsed = ParseWorkload(toml, "w.toml")) << toml;
    ASSERT_EQ(Dump(parsed).text(), Dump(workload).text()) << toml;
    ASSERT_EQ(ToToml(parsed), toml);
  }
}

// The comparison above would see a value that changed.
TEST(ToToml, TheComparisonSeesAChange) {
  Workload workload, other;
  workload.classes.resize(1);
  other.classes.resize(1);
  std::get<AttendSpec>(other.classes[0].call).kernel.topk = 1;
  EXPECT_NE(Dump(workload).text(), Dump(other).text());
}

TEST(ExampleToml, ParsesAndShowsTheDefaults) {
  const Workload example = ParseWorkload(std::string(ExampleToml()), "example.toml");
  ASSERT_EQ(example.classes.size(), 3U);
  Workload defaults;
  ClassSpec spec;
  spec.name = "short";
  spec.weight = 9;
  std::get<AttendSpec>(spec.call).kernel.kernel = "vanilla";
  AddGoal("p99 <= 50ms", &spec.objective);
  AddGoal("errors <= 0.1%", &spec.objective);
  defaults.classes = {spec};
  Workload shown = example;
  shown.classes.resize(1);
  EXPECT_EQ(Dump(shown).text(), Dump(defaults).text());

  // Its last class too, but for its name, its kind and its priority.
  Workload encode, shown_encode = example;
  shown_encode.classes = {example.classes[2]};
  ClassSpec texts;
  texts.name = "texts";
  texts.priority = v1::HIGH;
  texts.call = EncodeSpec();
  encode.classes = {texts};
  EXPECT_EQ(Dump(shown_encode).text(), Dump(encode).text());
}

// Each line that is commented out, put in place of what it replaces, parses too.
TEST(ExampleToml, ItsAlternativesParse) {
  std::istringstream lines{std::string(ExampleToml())};
  int tried = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# ") || line.find(" = ") == std::string::npos) continue;
    const std::string key = line.substr(2, line.find(" = ") - 2);
    const std::string pair = line.substr(2);
    if (key.find(' ') != std::string::npos) continue;  // a sentence
    const std::string attend = "[[class]]\nname = \"a\"\nkind = \"attend\"\n";
    std::string toml;
    if (key == "ramp" || key == "steps" || key == "sine" || key == "bursts") {
      toml = "[load]\n" + pair + "\n" + attend;
    } else if (key == "burstiness") {
      toml = "[load]\narrivals = \"gamma\"\n" + pair + "\n" + attend;
    } else if (key == "lengths" && pair.find("file") == std::string::npos) {
      toml = attend + pair;
    } else if (key == "causal") {
      toml = attend + "[class.kernel]\nname = \"vanilla\"\n" + pair;
    } else if (key == "allow" || key == "max-relative-error" || key == "min-cosine") {
      toml = attend + "[class.kernel]\nname = \"automatic\"\n" + pair;
    } else if (key == "clustering" || key == "cluster-size" || key == "attention-function" ||
               key == "gate-temperature" || key == "head-clustering" || key == "surrogates" ||
               key == "gate") {
      toml = attend + "[class.kernel]\nname = \"cast\"\n" + pair;
    } else if (key == "surrogate-tokens") {
      toml = attend + "kernel = \"cast\"\n" + pair;
    } else {
      continue;
    }
    EXPECT_NO_THROW(ParseWorkload(toml, "example.toml")) << toml;
    ++tried;
  }
  EXPECT_GE(tried, 18);
}

}  // namespace
}  // namespace castor::load
