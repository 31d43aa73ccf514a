#include <array>
#include <charconv>
#include <climits>

#include "client/load/workload/objective.h"
#include "client/load/workload/overloaded.h"
#include "client/load/workload/parse.h"
#include "client/load/workload/units.h"

namespace castor::load {
namespace {

// A basic string of TOML. UTF-8 stays as it is.
std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

// The shortest that reads as the same number.
std::string Shortest(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string SeedText(uint64_t seed) {
  const std::string digits = std::to_string(seed);
  return seed > INT64_MAX ? Quote(digits) : digits;
}

// "a, b, c" of what `text_of` makes of each.
template <typename Values, typename TextOf>
std::string Join(const Values& values, TextOf text_of) {
  std::string joined;
  for (const auto& value : values) joined += (joined.empty() ? "" : ", ") + text_of(value);
  return joined;
}

std::string TextOf(const Length& length) {
  return std::visit(
      Overloaded{
          [](const FixedLength& fixed) { return std::to_string(fixed.length); },
          [](const UniformLength& uniform) {
            return "{uniform = [" + std::to_string(uniform.least) + ", " +
                   std::to_string(uniform.greatest) + "]}";
          },
          [](const LognormalLength& lognormal) {
            return "{lognormal = {median = " + Shortest(lognormal.median) +
                   ", sigma = " + Shortest(lognormal.sigma) +
                   ", min = " + std::to_string(lognormal.least) +
                   ", max = " + std::to_string(lognormal.greatest) + "}}";
          },
          [](const EmpiricalLength& empirical) {
            return "[" + Join(empirical.lengths, [](int64_t l) { return std::to_string(l); }) + "]";
          },
          [](const LengthMixture& mixture) {
            return "{mix = [" +
                   Join(mixture.parts,
                        [](const LengthMixture::Part& part) {
                          return "{weight = " + Shortest(part.weight) +
                                 ", lengths = " + TextOf(part.of.front()) + "}";
                        }) +
                   "]}";
          }},
      length);
}

// The pairs of a table that are worth writing.
class Pairs {
 public:
  void Add(const std::string& key, const std::string& value) {
    pairs_.push_back(key + " = " + value);
  }
  void Text(const std::string& key, const std::string& value) {
    if (!value.empty()) Add(key, Quote(value));
  }
  void Number(const std::string& key, int64_t value) {
    if (value != 0) Add(key, std::to_string(value));
  }
  std::string Lines() const {
    std::string lines;
    for (const std::string& pair : pairs_) lines += pair + "\n";
    return lines;
  }
  std::string Inline() const {
    return "{" + Join(pairs_, [](const std::string& pair) { return pair; }) + "}";
  }

 private:
  std::vector<std::string> pairs_;
};

void AddKernel(const cli::KernelFlags& kernel, Pairs* to) {
  Pairs pairs;
  pairs.Text("name", kernel.kernel);
  const bool improved = kernel.kernel == "improved-clustered";
  if (kernel.exact() && kernel.causal) pairs.Add("causal", "true");
  if (kernel.kernel == "clustered" || improved) {
    pairs.Number("clusters", kernel.clusters);
    pairs.Number("iterations", kernel.iterations);
    pairs.Number("bits", kernel.bits);
    if (!kernel.hash_bias) pairs.Add("hash-bias", "false");
    pairs.Text("query-clustering", kernel.query_clustering);
    if (kernel.kernel_seed != 0) pairs.Add("seed", SeedText(kernel.kernel_seed));
  }
  if (improved) {
    pairs.Number("topk", kernel.topk);
    pairs.Text("rest-mass", kernel.rest_mass);
  }
  if (kernel.kernel == "cast") {
    pairs.Text("surrogates", kernel.surrogates);
    pairs.Text("layer", kernel.layer);
    pairs.Text("gate", kernel.gate);
    pairs.Text("clustering", kernel.clustering);
    pairs.Number("cluster-size", kernel.cluster_size);
    pairs.Text("attention-function", kernel.attention_function);
    pairs.Text("gate-temperature", kernel.gate_temperature);
    pairs.Text("head-clustering", kernel.head_clustering);
  }
  if (kernel.kernel == "automatic") {
    if (!kernel.allowed.empty()) pairs.Add("allow", "[" + Join(kernel.allowed, Quote) + "]");
    if (kernel.max_relative_error != 0) {
      pairs.Add("max-relative-error", Shortest(kernel.max_relative_error));
    }
    if (kernel.min_cosine != 0) pairs.Add("min-cosine", Shortest(kernel.min_cosine));
  }
  const std::string text = pairs.Inline();
  if (text != "{}") to->Add("kernel", text);
}

void AddAttend(const AttendSpec& attend, Pairs* pairs) {
  pairs->Add("kind", "\"attend\"");
  pairs->Add("lengths", TextOf(attend.lengths));
  pairs->Add("sequences", TextOf(attend.sequences));
  pairs->Add("heads", std::to_string(attend.heads));
  pairs->Add("head-dim", std::to_string(attend.head_dim));
  pairs->Number("value-dim", attend.value_dim);
  constexpr const char* kTypes[] = {"float32", "float16", "bfloat16"};
  pairs->Add("dtype", Quote(kTypes[attend.dtype - v1::FLOAT32]));
  AddKernel(attend.kernel, pairs);
  if (attend.kernel.kernel == "cast") {
    pairs->Add("surrogate-tokens", std::to_string(attend.surrogate_tokens));
  }
}

void AddEncode(const EncodeSpec& encode, Pairs* pairs) {
  pairs->Add("kind", "\"encode\"");
  pairs->Text("model", encode.model);
  pairs->Text("text-file", encode.text_file);
  if (encode.text_file.empty()) pairs->Add("lengths", TextOf(encode.lengths));
  pairs->Add("sequences", TextOf(encode.sequences));
  constexpr const char* kOutputs[] = {"",       "token-embeddings", "pooled",
                                      "logits", "scores",           "sparse"};
  pairs->Text("output", kOutputs[encode.output]);
  AddKernel(encode.kernel, pairs);
}

// What [defaults] may have as well.
void AddCommon(const ClassSpec& spec, Pairs* pairs) {
  constexpr const char* kPriorities[] = {"", "low", "normal", "high"};
  pairs->Text("priority", kPriorities[spec.priority]);
  pairs->Add("deadline", Quote(FormatDuration(spec.deadline)));
  pairs->Text("tenant", spec.tenant);
  pairs->Text("token", spec.token);
  if (spec.cancel_share > 0) pairs->Add("cancel-share", Shortest(spec.cancel_share));
  if (spec.cancel_after.count() > 0) {
    pairs->Add("cancel-after", Quote(FormatDuration(spec.cancel_after)));
  }
  if (const auto* attend = std::get_if<AttendSpec>(&spec.call)) {
    if (attend->inputs == Inputs::kStructured) pairs->Text("inputs", "structured");
    if (spec.shared_memory) pairs->Add("shared-memory", "true");
  }
  if (!spec.objective.empty()) {
    pairs->Add("objectives", "[" + Join(GoalsOf(spec.objective), Quote) + "]");
  }
}

void AddRate(const Rate& rate, Pairs* pairs) {
  std::visit(
      Overloaded{[&](const FlatRate& flat) { pairs->Add("rate", Shortest(flat.rate)); },
                 [&](const RampRate& ramp) {
                   pairs->Add("ramp", "{from = " + Shortest(ramp.from) +
                                          ", to = " + Shortest(ramp.to) + "}");
                 },
                 [&](const StepRate& steps) {
                   pairs->Add("steps", "[" + Join(steps.rates, Shortest) + "]");
                 },
                 [&](const SineRate& sine) {
                   pairs->Add("sine", "{mean = " + Shortest(sine.mean) +
                                          ", amplitude = " + Shortest(sine.amplitude) +
                                          ", period = " + Quote(FormatDuration(sine.period)) + "}");
                 },
                 [&](const BurstRate& bursts) {
                   pairs->Add("bursts", "{base = " + Shortest(bursts.base) +
                                            ", burst = " + Shortest(bursts.burst) +
                                            ", length = " + Quote(FormatDuration(bursts.length)) +
                                            ", period = " + Quote(FormatDuration(bursts.period)) +
                                            "}");
                 }},
      rate);
}

void AddLoad(const OpenLoop& open, Pairs* pairs) {
  constexpr const char* kProcesses[] = {"constant", "poisson", "gamma"};
  pairs->Text("arrivals", kProcesses[static_cast<size_t>(open.process)]);
  if (open.process == Process::kGamma) pairs->Add("burstiness", Shortest(open.burstiness));
  AddRate(open.rate, pairs);
  pairs->Number("max-in-flight", open.max_in_flight);
}

void AddLoad(const ClosedLoop& closed, Pairs* pairs) {
  pairs->Text("arrivals", "closed");
  pairs->Add("callers", std::to_string(closed.callers));
  pairs->Add("think-time", Quote(FormatDuration(closed.think_time)));
}

void AddLoad(const Replay& replay, Pairs* pairs) {
  pairs->Text("arrivals", "replay");
  pairs->Text("file", replay.file);
  pairs->Add("speed", Shortest(replay.speed));
  pairs->Number("max-in-flight", replay.max_in_flight);
}

std::string TextOf(const ClassSpec& spec) {
  Pairs pairs;
  pairs.Text("name", spec.name);
  pairs.Add("weight", Shortest(spec.weight));
  pairs.Add("payloads", std::to_string(spec.payloads));
  if (const auto* attend = std::get_if<AttendSpec>(&spec.call)) {
    AddAttend(*attend, &pairs);
  } else {
    AddEncode(std::get<EncodeSpec>(spec.call), &pairs);
  }
  AddCommon(spec, &pairs);
  return "\n[[class]]\n" + pairs.Lines();
}

}  // namespace

std::string ToToml(const Workload& workload) {
  Pairs run, load;
  const auto* replay = std::get_if<Replay>(&workload.load);
  if (replay == nullptr || workload.duration.count() > 0) {
    run.Add("duration", Quote(FormatDuration(workload.duration)));
  }
  run.Add("warm-up", Quote(FormatDuration(workload.warm_up)));
  run.Add("seed", SeedText(workload.seed));
  std::visit([&](const auto& kind) { AddLoad(kind, &load); }, workload.load);
  std::string toml = "[run]\n" + run.Lines() + "\n[load]\n" + load.Lines();
  if (replay != nullptr) {
    Pairs defaults;
    AddCommon(replay->each, &defaults);
    return toml + "\n[defaults]\n" + defaults.Lines();
  }
  for (const ClassSpec& spec : workload.classes) toml += TextOf(spec);
  return toml;
}

}  // namespace castor::load
