#include <algorithm>
#include <stdexcept>

#include "client/cli/command.h"
#include "client/file.h"
#include "client/load/workload/objective.h"
#include "client/load/workload/parse_parts.h"

namespace castor::load {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr size_t kMaxName = 64;             // bytes of a class's name
constexpr size_t kMaxTokenBytes = 1 << 14;  // of an authorization token
constexpr int64_t kMaxWidth = 65536;        // heads, dimensions, surrogate tokens
constexpr int64_t kMaxPayloads = 65536;

bool IsMetadata(const std::string& text) {  // gRPC ends the process over other bytes
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// The server takes no others.
bool IsTenantName(const std::string& text) {
  return text.size() <= 64 && text.find_first_not_of(
                                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-") == std::string::npos;
}

void ReadToken(TomlTable& table, std::string* token) {
  if (table.Has("token") && table.Has("token-file")) {
    table.Fail("token-file", "token and token-file exclude each other");
  }
  table.Text("token", token);
  std::string path;
  table.Text("token-file", &path);
  if (!path.empty()) {
    auto file = client::InputFile::Open(path);
    absl::Status status = file.status();
    token->clear();
    if (status.ok()) status = file->Append(kMaxTokenBytes, token);
    if (!status.ok()) table.Fail("token-file", std::string(status.message()));
    while (!token->empty() && (token->back() == '\n' || token->back() == '\r')) token->pop_back();
    if (token->empty()) table.Fail("token-file", file->name() + " is empty");
  }
  if (!IsMetadata(*token) || token->size() >= kMaxTokenBytes) {
    table.Fail(path.empty() ? "token" : "token-file", "a token is printable ASCII, below 16 KiB");
  }
}

void ReadObjective(TomlTable& table, Objective* objective) {
  if (!table.Has("objectives")) return;
  std::vector<std::string> goals;
  table.Texts("objectives", &goals);
  *objective = {};
  for (const std::string& goal : goals) {
    try {
      AddGoal(goal, objective);
    } catch (const std::invalid_argument& error) {
      table.Fail("objectives", std::string("objective ") + error.what());
    }
  }
}

// What [defaults] and every class may have.
void ReadCommon(TomlTable& table, ClassSpec* spec) {
  size_t priority = spec->priority;
  table.Choice("priority", {"default", "low", "normal", "high"}, &priority);
  spec->priority = static_cast<v1::Priority>(priority);
  table.Time("deadline", milliseconds(1), hours(24), &spec->deadline);
  table.Text("tenant", &spec->tenant);
  if (!IsTenantName(spec->tenant)) {
    table.Fail("tenant", "tenant must be 1 to 64 letters, digits, '.', '_', '-'");
  }
  ReadToken(table, &spec->token);
  table.Real("cancel-share", {0, 1}, &spec->cancel_share);
  table.Time("cancel-after", nanoseconds(0), hours(24), &spec->cancel_after);
  ReadObjective(table, &spec->objective);
}

void ReadInputs(TomlTable& table, ClassSpec* spec) {
  auto& attend = std::get<AttendSpec>(spec->call);
  size_t inputs = static_cast<size_t>(attend.inputs);
  table.Choice("inputs", {"gaussian", "structured"}, &inputs);
  attend.inputs = static_cast<Inputs>(inputs);
  table.Flag("shared-memory", &spec->shared_memory);
}

void ReadAttend(TomlTable& table, ClassSpec* spec) {
  ReadInputs(table, spec);
  auto& attend = std::get<AttendSpec>(spec->call);
  ReadLength(table, "lengths", kMaxTokens, &attend.lengths);
  ReadLength(table, "sequences", kMaxSequences, &attend.sequences);
  table.Whole("heads", 1, kMaxWidth, &attend.heads);
  table.Whole("head-dim", 1, kMaxWidth, &attend.head_dim);
  table.Whole("value-dim", 0, kMaxWidth, &attend.value_dim);
  size_t dtype = attend.dtype - v1::FLOAT32;
  table.Choice("dtype", {"float32", "float16", "bfloat16"}, &dtype);
  attend.dtype = static_cast<v1::DataType>(v1::FLOAT32 + dtype);
  ReadKernel(table, &attend.kernel);
  if (attend.kernel.kernel == "cast") {
    table.Whole("surrogate-tokens", 1, kMaxWidth, &attend.surrogate_tokens);
  }
}

void ReadEncode(TomlTable& table, EncodeSpec* encode) {
  table.Text("model", &encode->model);
  table.Text("text-file", &encode->text_file);
  if (encode->text_file.empty()) {
    ReadLength(table, "lengths", kMaxTokens, &encode->lengths);
  } else if (table.Has("lengths")) {
    table.Fail("lengths", "lengths are of generated texts: they exclude text-file");
  }
  ReadLength(table, "sequences", kMaxSequences, &encode->sequences);
  size_t output = encode->output;
  table.Choice("output", {"default", "token-embeddings", "pooled", "logits", "scores", "sparse"},
               &output);
  encode->output = static_cast<v1::EncodeOutput>(output);
  ReadKernel(table, &encode->kernel);
}

}  // namespace

ClassSpec ReadDefaults(TomlTable& table) {
  ClassSpec spec;
  ReadCommon(table, &spec);
  ReadInputs(table, &spec);
  return spec;
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
    ReadAttend(table, &spec);
  } else {
    spec.shared_memory = false;
    ReadEncode(table, &spec.call.emplace<EncodeSpec>());
  }
  table.RefuseOthers();
  return spec;
}

}  // namespace castor::load
