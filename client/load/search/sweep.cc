#include "client/load/search/sweep.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>

#include <set>

#include "client/cli/command.h"

namespace castor::load {
namespace {

constexpr size_t kMaxCells = 1000;

[[noreturn]] void Refuse(const std::string& name, const std::string& why) {
  throw cli::UsageError("--vary " + name + ": " + why);
}

// A parameter and its values, as they were written.
struct Vary {
  std::string name;
  std::vector<std::string> values;
};

Vary ParseVary(const std::string& text) {
  const std::vector<std::string> sides = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (sides.size() != 2) Refuse("'" + text + "'", "must look like rate=50,100,200");
  Vary vary{.name = sides[0], .values = absl::StrSplit(sides[1], ',')};
  std::set<std::string> seen;
  for (const std::string& value : vary.values) {
    if (value.empty()) Refuse(vary.name, "a value is empty");
    if (!seen.insert(value).second) Refuse(vary.name, "'" + value + "' is given twice");
  }
  return vary;
}

// Sets a number where the value is one.
void SetKey(const std::string& key, const std::string& value, toml::table* table) {
  int64_t whole = 0;
  double real = 0;
  if (absl::SimpleAtoi(value, &whole)) {
    table->insert_or_assign(key, whole);
  } else if (absl::SimpleAtod(value, &real)) {
    table->insert_or_assign(key, real);
  } else {
    table->insert_or_assign(key, value);
  }
}

void SetOfClass(const std::string& name, const std::string& value, toml::table* spec) {
  const bool encode = (*spec)["kind"].value_or(std::string_view()) == "encode";
  if (name == "heads" || name == "head-dim") {
    if (!encode) SetKey(name, value, spec);
  } else if (name == "length") {
    SetKey("lengths", value, spec);
  } else if (name == "sequences") {
    SetKey(name, value, spec);
  } else if (name == "kernel") {
    spec->insert_or_assign("kernel", value);
  } else {
    const std::string kernel = (*spec)["kernel"].value_or(std::string());
    if (kernel.empty()) {
      Refuse(name,
             "unknown parameter; it may be rate, callers, length, sequences, heads, head-dim, "
             "kernel, or a parameter of the kernel");
    }
    spec->insert_or_assign("kernel", kernel + "," + name + "=" + value);
  }
}

// REQUIRES: `workload` has been parsed without an error.
void SetParameter(const std::string& name, const std::string& value, toml::table* workload) {
  if (name == "rate" || name == "callers") {
    toml::node& load = workload->insert("load", toml::table()).first->second;
    return SetKey(name, value, load.as_table());
  }
  for (toml::node& spec : *(*workload)["class"].as_array()) {
    SetOfClass(name, value, spec.as_table());
  }
}

}  // namespace

std::vector<SweepCell> MakeSweep(const toml::table& workload, const std::vector<std::string>& vary,
                                 const ReadWorkload& read) {
  (void)read(workload);
  std::vector<Vary> parameters;
  std::set<std::string> names;
  size_t count = 1;
  for (const std::string& text : vary) {
    const Vary& one = parameters.emplace_back(ParseVary(text));
    if (!names.insert(one.name).second) Refuse(one.name, "give its values in one list");
    count *= one.values.size();
    if (count > kMaxCells) Refuse(one.name, "there are over 1,000 cells");
  }
  std::vector<SweepCell> cells(count);
  for (size_t i = 0; i < count; ++i) {
    toml::table of_cell = workload;
    size_t cells_each = count;  // of each value
    for (const Vary& one : parameters) {
      cells_each /= one.values.size();
      const std::string& value = one.values[i / cells_each % one.values.size()];
      SetParameter(one.name, value, &of_cell);
      cells[i].parameters.emplace_back(one.name, value);
    }
    cells[i].workload = read(of_cell);
  }
  return cells;
}

std::string ClientFault(const Verdict& verdict) {
  std::string text;
  for (const Finding& finding : verdict.validity) {
    const bool server = finding.cause == Cause::kTooShort || finding.cause == Cause::kOverload;
    if (finding.passed || server) continue;
    text += (text.empty() ? "" : "; ") + finding.rule + ": " + finding.text;
  }
  return text;
}

}  // namespace castor::load
