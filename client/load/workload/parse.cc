#include "client/load/workload/parse.h"

#include <algorithm>
#include <climits>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/file.h"
#include "client/load/workload/lengths.h"
#include "client/load/workload/parse_parts.h"
#include "client/tensor.h"

namespace castor::load {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr size_t kMaxClasses = 1000;
constexpr size_t kMaxFileBytes = 16 << 20;
constexpr double kMaxPayloadMemory = 4.0 * (1 << 30);  // of all classes

// Refuses what cannot be built before anything is drawn. The greatest request may still be too
// large; that shows when it is drawn.
void CheckMemory(const std::vector<ClassSpec>& classes, const std::string& name) {
  double total = 0;
  for (const ClassSpec& spec : classes) {
    const auto* attend = std::get_if<AttendSpec>(&spec.call);
    if (attend == nullptr) continue;
    const double dims = static_cast<double>(
        2 * attend->head_dim + (attend->value_dim == 0 ? attend->head_dim : attend->value_dim));
    const double bytes = Mean(attend->lengths) * Mean(attend->sequences) *
                         static_cast<double>(attend->heads) * dims *
                         static_cast<double>(client::SizeOf(attend->dtype));
    total += bytes * static_cast<double>(spec.payloads);
    const auto gib = [](double size) { return cli::FormatReal(size / (1 << 30)) + " GiB"; };
    const std::string where = name + ": class '" + spec.name + "': ";
    if (bytes > INT_MAX) {
      throw cli::UsageError(where + "a request has " + gib(bytes) + " on average, and a message " +
                            "ends at 2 GiB; give it fewer tokens, heads or dimensions");
    }
    if (total > kMaxPayloadMemory) {
      throw cli::UsageError(where + "the distinct requests up to this class take " + gib(total) +
                            ", and 4 GiB are allowed; give it fewer payloads");
    }
  }
}

std::vector<ClassSpec> ReadClasses(TomlTable& root, const ClassSpec& defaults) {
  std::vector<ClassSpec> classes;
  const toml::node* node = root.Find("class");
  if (node == nullptr) return classes;
  const auto* tables = node->as_array();
  if (tables == nullptr) root.Fail("class", "write [[class]], in two pairs of brackets");
  if (tables->size() > kMaxClasses) root.Fail("class", "has more than 1000 classes");
  for (const toml::node& element : *tables) {
    if (!element.is_table()) root.Refuse("class", element, "[[class]]");
    const toml::table& table = *element.as_table();
    classes.push_back(ReadClass(table, root.file(), classes.size() + 1, defaults));
    const std::string& name = classes.back().name;
    if (std::any_of(classes.begin(), classes.end() - 1,
                    [&](const ClassSpec& other) { return other.name == name; })) {
      TomlTable(table, root.file(), "class '" + name + "'")
          .Fail("name", "there is another class of this name");
    }
  }
  return classes;
}

void ReadRun(TomlTable table, Workload* workload) {
  if (std::holds_alternative<Replay>(workload->load)) {
    workload->duration = workload->warm_up = nanoseconds(0);
  }
  table.Time("duration", milliseconds(10), hours(24 * 7), &workload->duration);
  table.Time("warm-up", nanoseconds(0), hours(24), &workload->warm_up);
  table.Seed("seed", &workload->seed);
  table.RefuseOthers();
}

Workload ReadRoot(const toml::table& toml, const std::string& name) {
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
  const ClassSpec defaults = ReadDefaults(defaults_table);
  defaults_table.RefuseOthers();
  TomlTable load = section("load");
  workload.load = ReadLoad(load, defaults);
  load.RefuseOthers();
  ReadRun(section("run"), &workload);
  workload.classes = ReadClasses(root, defaults);
  root.RefuseOthers();

  const bool replay = std::holds_alternative<Replay>(workload.load);
  if (replay && !workload.classes.empty()) {
    root.Fail("class",
              "a replay has no [[class]]: its file makes the classes; what they have in "
              "common stands in [defaults]");
  }
  if (!replay && workload.classes.empty()) root.Fail("", "needs at least one [[class]]");
  CheckMemory(workload.classes, name);
  return workload;
}

}  // namespace

Workload ParseWorkload(const std::string& text, const std::string& name) {
  try {
    return ReadRoot(toml::parse(text), name);
  } catch (const toml::parse_error& error) {
    throw cli::UsageError(name + ", line " + std::to_string(error.source().begin.line) + ": " +
                          std::string(error.description()));
  }
}

Workload ReadWorkload(const std::string& path) {
  auto file = client::InputFile::Open(path);
  std::string text;
  absl::Status status = file.status();
  if (status.ok()) status = file->Append(kMaxFileBytes + 1, &text);
  if (!status.ok()) throw cli::UsageError(std::string(status.message()));
  if (text.size() > kMaxFileBytes) throw cli::UsageError(path + " is larger than 16 MiB");
  return ParseWorkload(text, path);
}

}  // namespace castor::load
