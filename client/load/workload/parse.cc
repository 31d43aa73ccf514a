#include "client/load/workload/parse.h"

#include <algorithm>
#include <stdexcept>

#include "client/cli/attend/kernel_flags.h"
#include "client/cli/command.h"
#include "client/file.h"
#include "client/load/workload/toml_table.h"

namespace castor::load {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr size_t kMaxClasses = 256;
constexpr size_t kMaxFileBytes = 16 << 20;
constexpr size_t kMaxName = 64;                   // bytes of a class's name
constexpr int64_t kMaxTokens = int64_t{1} << 20;  // of one sequence
constexpr int64_t kMaxSequences = 4096;           // of one request
constexpr int64_t kMaxWidth = 65536;              // heads, dimensions, surrogate tokens
constexpr int64_t kMaxPayloads = 65536;

// ---- lengths

LognormalLength ReadLognormal(TomlTable table, int64_t greatest) {
  LognormalLength lognormal;
  lognormal.greatest = std::min(lognormal.greatest, greatest);
  table.Real("median", {0, 1e9, /*above=*/true}, &lognormal.median);
  table.Real("sigma", {0, 10}, &lognormal.sigma);
  table.Whole("max", 1, greatest, &lognormal.greatest);
  table.Whole("min", 1, lognormal.greatest, &lognormal.least);
  table.RefuseUnknownKeys();
  return lognormal;
}

// Leaves `length` unchanged without the key.
void ReadLength(TomlTable& table, std::string_view key, int64_t greatest, Length* length) {
  const toml::node* node = table.Find(key);
  if (node == nullptr) return;
  if (node->is_integer()) {
    *length = FixedLength{table.WholeOf(key, *node, 1, greatest)};
    return;
  }
  if (!node->is_table() || node->as_table()->size() != 1) {
    table.Refuse(key, *node, "a whole number, {uniform = [1, 512]} or {lognormal = {...}}");
  }
  TomlTable shape = table.SubTable(key);
  if (const toml::node* ends = shape.Find("uniform")) {
    const auto* pair = ends->as_array();
    if (pair == nullptr || pair->size() != 2) shape.Refuse("uniform", *ends, "[least, greatest]");
    UniformLength uniform;
    uniform.least = shape.WholeOf("uniform", *pair->get(0), 1, greatest);
    uniform.greatest = shape.WholeOf("uniform", *pair->get(1), uniform.least, greatest);
    *length = uniform;
  } else if (shape.Has("lognormal")) {
    *length = ReadLognormal(shape.SubTable("lognormal"), greatest);
  }
  shape.RefuseUnknownKeys();
}

// ---- classes

void ReadKernel(TomlTable& table, std::string* kernel) {
  table.Text("kernel", kernel);
  try {
    cli::CheckKernel(*kernel);
  } catch (const CLI::Error& error) {
    table.Fail("kernel", std::string("kernel: ") + error.what());
  }
}

// The server accepts the same names.
bool IsTenantName(const std::string& text) {
  return text.size() <= 64 && text.find_first_not_of(
                                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-") == std::string::npos;
}

// Reads the keys of [defaults] and of every class.
void ReadCommon(TomlTable& table, ClassSpec* spec) {
  size_t priority = spec->priority;
  table.Choice("priority", {"default", "low", "normal", "high"}, &priority);
  spec->priority = static_cast<v1::Priority>(priority);
  table.Time("deadline", milliseconds(1), hours(24), &spec->deadline);
  table.Text("tenant", &spec->tenant);
  if (!IsTenantName(spec->tenant)) {
    table.Fail("tenant", "tenant must be 1 to 64 letters, digits, '.', '_', '-'");
  }
  table.Text("token-file", &spec->token_file);
  table.Real("cancel-share", {0, 1}, &spec->cancel_share);
  table.Time("cancel-after", nanoseconds(0), hours(24), &spec->cancel_after);
  if (!table.Has("objectives")) return;
  std::vector<std::string> goals;
  table.Texts("objectives", &goals);
  spec->objective = {};
  for (const std::string& goal : goals) {
    try {
      AddGoal(goal, &spec->objective);
    } catch (const std::invalid_argument& error) {
      table.Fail("objectives", std::string("objective ") + error.what());
    }
  }
}

AttendSpec ReadAttend(TomlTable& table) {
  AttendSpec attend;
  ReadLength(table, "lengths", kMaxTokens, &attend.lengths);
  ReadLength(table, "sequences", kMaxSequences, &attend.sequences);
  table.Whole("heads", 1, kMaxWidth, &attend.heads);
  table.Whole("head-dim", 1, kMaxWidth, &attend.head_dim);
  size_t dtype = 0, inputs = 0;
  table.Choice("dtype", {"float32", "float16", "bfloat16"}, &dtype);
  attend.dtype = static_cast<v1::DataType>(v1::FLOAT32 + dtype);
  table.Choice("inputs", {"gaussian", "structured"}, &inputs);
  attend.structured = inputs == 1;
  table.Whole("surrogate-tokens", 1, kMaxWidth, &attend.surrogate_tokens);
  ReadKernel(table, &attend.kernel);
  return attend;
}

EncodeSpec ReadEncode(TomlTable& table) {
  EncodeSpec encode;
  table.Text("model", &encode.model);
  table.Text("text-file", &encode.text_file);
  if (!encode.text_file.empty() && table.Has("lengths")) {
    table.Fail("lengths", "lengths applies to generated texts: leave out text-file, or lengths");
  }
  ReadLength(table, "lengths", kMaxTokens, &encode.lengths);
  ReadLength(table, "sequences", kMaxSequences, &encode.sequences);
  size_t output = encode.output;
  table.Choice("output", {"default", "token-embeddings", "pooled", "logits", "scores", "sparse"},
               &output);
  encode.output = static_cast<v1::EncodeOutput>(output);
  ReadKernel(table, &encode.kernel);
  return encode;
}

ClassSpec ReadClass(const toml::table& toml, const std::string& file, size_t number,
                    const ClassSpec& defaults) {
  ClassSpec spec = defaults;
  TomlTable unnamed(toml, file, "class " + std::to_string(number));
  unnamed.Text("name", &spec.name);
  if (spec.name.empty() || spec.name.size() > kMaxName) {
    unnamed.Fail("name", "needs a name of 1 to 64 bytes");
  }
  TomlTable table(toml, file, "class '" + spec.name + "'");
  table.Find("name");
  table.Real("weight", {0, 1e9, /*above=*/true}, &spec.weight);
  table.Whole("payloads", 1, kMaxPayloads, &spec.payloads);
  ReadCommon(table, &spec);
  if (spec.cancel_share > 0 && spec.cancel_after >= spec.deadline) {
    table.Fail("cancel-after", "cancel-after must be below the deadline");
  }
  size_t kind = 2;
  table.Choice("kind", {"attend", "encode"}, &kind);
  if (kind == 2) table.Fail("kind", "needs kind = \"attend\" or kind = \"encode\"");
  if (kind == 0) {
    spec.call = ReadAttend(table);
  } else {
    spec.call = ReadEncode(table);
  }
  table.RefuseUnknownKeys();
  return spec;
}

std::vector<ClassSpec> ReadClasses(TomlTable& root, const ClassSpec& defaults) {
  std::vector<ClassSpec> classes;
  const toml::node* node = root.Find("class");
  if (node == nullptr) root.Fail("", "needs at least one [[class]]");
  const auto* tables = node->as_array();
  if (tables == nullptr) root.Fail("class", "write [[class]], in two pairs of brackets");
  if (tables->size() > kMaxClasses) root.Fail("class", "has more than 256 classes");
  for (const toml::node& element : *tables) {
    if (!element.is_table()) root.Refuse("class", element, "[[class]]");
    const toml::table& table = *element.as_table();
    classes.push_back(ReadClass(table, root.file(), classes.size() + 1, defaults));
    const std::string& name = classes.back().name;
    if (std::any_of(classes.begin(), classes.end() - 1,
                    [&](const ClassSpec& other) { return other.name == name; })) {
      TomlTable(table, root.file(), "class '" + name + "'")
          .Fail("name", "another class has this name");
    }
  }
  return classes;
}

// ---- [load] and [run]

Load ReadLoad(TomlTable table) {
  size_t arrivals = 0;
  table.Choice("arrivals", {"poisson", "constant", "closed"}, &arrivals);
  Load load;
  if (arrivals == 2) {
    ClosedLoop closed;
    table.Whole("callers", 1, 100'000, &closed.callers);
    table.Time("think-time", nanoseconds(0), hours(1), &closed.think_time);
    load = closed;
  } else {
    OpenLoop open;
    open.constant = arrivals == 1;
    table.Real("rate", {0, 1e7, /*above=*/true}, &open.rate);
    table.Whole("max-in-flight", 0, 10'000'000, &open.max_in_flight);
    load = open;
  }
  table.RefuseUnknownKeys();
  return load;
}

void ReadRun(TomlTable table, Workload* workload) {
  table.Time("duration", milliseconds(10), hours(24 * 7), &workload->duration);
  table.Time("warm-up", nanoseconds(0), hours(24), &workload->warm_up);
  auto seed = static_cast<int64_t>(workload->seed);
  table.Whole("seed", 0, INT64_MAX, &seed);
  workload->seed = static_cast<uint64_t>(seed);
  table.RefuseUnknownKeys();
}

}  // namespace

Workload ParseWorkload(const toml::table& toml, const std::string& name) {
  static const toml::table kNothing;
  TomlTable root(toml, name, "the workload");
  const auto section = [&](const char* key) {
    const toml::node* node = root.Find(key);
    if (node != nullptr && !node->is_table()) {
      root.Fail(key, std::string("write [") + key + "]");
    }
    return TomlTable(node == nullptr ? kNothing : *node->as_table(), name,
                     std::string("[") + key + "]");
  };
  Workload workload;
  TomlTable defaults_table = section("defaults");
  ClassSpec defaults;
  ReadCommon(defaults_table, &defaults);
  defaults_table.RefuseUnknownKeys();
  workload.load = ReadLoad(section("load"));
  ReadRun(section("run"), &workload);
  workload.classes = ReadClasses(root, defaults);
  root.RefuseUnknownKeys();
  return workload;
}

toml::table ParseToml(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw cli::UsageError(name + ", line " + std::to_string(error.source().begin.line) + ": " +
                          std::string(error.description()));
  }
}

std::string ReadText(const std::string& path) {
  return cli::OrUsageError(client::ReadFile(path, kMaxFileBytes));
}

}  // namespace castor::load
