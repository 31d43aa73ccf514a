#include "engine/attention/cost/cost_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "engine/base/regular_file.h"
#include "engine/kernel_table.h"

namespace castor::attention {
namespace {

constexpr std::string_view kTitle = "castor cost model 3\n";
constexpr std::string_view kKeyLabel = "key ";
constexpr std::string_view kTeamLabel = "team ";
constexpr std::string_view kChecksumLabel = "checksum ";
constexpr int64_t kMaxFileBytes = 1 << 16;

// FNV-1a: against torn and edited files, not against malice.
uint64_t Checksum(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string Hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// The key on one line, whatever the device calls itself.
std::string OneLine(std::string_view key) {
  std::string line(key);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return line;
}

absl::Status Broken(std::string_view problem) {
  return absl::DataLossError("the cost model file " + std::string(problem));
}

// Takes `prefix` off the front of `text`, if it is there.
bool Consume(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

void AppendNumber(double number, std::string* text) {
  char digits[32];  // the shortest that reads back as the same number
  const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  *text += ' ';
  text->append(digits, end);
}

std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return {};
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return line;
}

template <typename Values, typename T>
bool ConsumeName(const Values& values, std::string_view* line, T* out) {
  for (const T value : values) {
    std::string_view rest = *line;
    if (!Consume(NameOf(value), &rest) || !Consume(" ", &rest)) continue;
    *line = rest;
    *out = value;
    return true;
  }
  return false;
}

// Takes a number off the front of `text`: finite, and not negative.
template <typename Number>
bool ConsumeNumber(std::string_view* text, Number* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || !std::isfinite(static_cast<double>(*number)) || *number < 0) {
    return false;
  }
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

// "team 4 0.9": the workers, and the gain of each beyond the first.
bool ParseTeam(std::string_view line, CostModel* model) {
  Team team;
  if (!Consume(kTeamLabel, &line) || !ConsumeNumber(&line, &team.workers) || team.workers < 1 ||
      !Consume(" ", &line) || !ConsumeNumber(&line, &team.gain) || team.gain > 1 || !line.empty()) {
    return false;
  }
  model->SetTeam(team);
  return true;
}

// "improved_clustered float16 12.5 0 ...", one price per term.
bool ParseRow(std::string_view line, CostModel* model) {
  std::array<KernelName, kKernelCount> names;
  for (size_t i = 0; i < kKernelCount; ++i) names[i] = kKernels[i].name;
  KernelName kernel;
  DType dtype;
  if (!ConsumeName(names, &line, &kernel) || !ConsumeName(kFloatingDTypes, &line, &dtype)) {
    return false;
  }
  CostTerms prices;
  for (size_t t = 0; t < kCostTerms; ++t) {
    if ((t > 0 && !Consume(" ", &line)) || !ConsumeNumber(&line, &prices[t])) return false;
  }
  if (!line.empty() || model->prices().contains({kernel, dtype})) return false;
  model->Set(kernel, dtype, prices);
  return true;
}

}  // namespace

std::string FormatCosts(const CostModel& model, std::string_view key) {
  std::string text(kTitle);
  text += std::string(kKeyLabel) + OneLine(key) + "\n";
  text += std::string(kTeamLabel) + std::to_string(model.team().workers);
  AppendNumber(model.team().gain, &text);
  text += '\n';
  for (const auto& [row, prices] : model.prices()) {
    text += NameOf(row.first);
    text += ' ';
    text += NameOf(row.second);
    for (const double price : prices) AppendNumber(price, &text);
    text += '\n';
  }
  const uint64_t checksum = Checksum(text);
  text += kChecksumLabel;
  text += Hex(checksum);
  text += '\n';
  return text;
}

absl::StatusOr<CostModel> ParseCosts(std::string_view text, std::string_view key) {
  const size_t last = text.rfind(kChecksumLabel);
  if (last == std::string_view::npos ||
      text.substr(last) !=
          std::string(kChecksumLabel) + Hex(Checksum(text.substr(0, last))) + "\n") {
    return Broken("is damaged");
  }
  text = text.substr(0, last);
  if (!Consume(kTitle, &text)) return Broken("has an unknown format");
  if (TakeLine(&text) != std::string(kKeyLabel) + OneLine(key)) {
    return Broken("was measured on another device or build");
  }
  CostModel model;
  if (!ParseTeam(TakeLine(&text), &model)) return Broken("has a line that cannot be read");
  while (!text.empty()) {
    if (!ParseRow(TakeLine(&text), &model)) return Broken("has a line that cannot be read");
  }
  if (model.empty()) return Broken("holds no kernel");
  return model;
}

absl::StatusOr<CostModel> ReadCosts(const std::string& file, std::string_view key) {
  const absl::StatusOr<std::string> text = ReadRegularFile(file, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return absl::NotFoundError("no file " + file);
  if (!text.ok()) return Broken("cannot be read: " + std::string(text.status().message()));
  return ParseCosts(*text, key);
}

absl::Status WriteCosts(const std::string& file, const CostModel& model, std::string_view key) {
  // Unique to this process and call: several engines may start at once.
  static std::atomic<int> calls = 0;
  const std::string temporary =
      file + "." + std::to_string(getpid()) + "." + std::to_string(++calls);
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << FormatCosts(model, key);
  out.close();
  // Unlike rename, link does not replace an existing file.
  const int failure = !out.good() ? EIO : link(temporary.c_str(), file.c_str()) != 0 ? errno : 0;
  unlink(temporary.c_str());
  if (failure == 0) return absl::OkStatus();
  if (failure == EEXIST) return absl::AlreadyExistsError("there is a file " + file);
  return absl::UnavailableError("the cost model cannot be written to " + file);
}

}  // namespace castor::attention
