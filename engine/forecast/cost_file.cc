#include "engine/forecast/cost_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "engine/base/regular_file.h"
#include "engine/kernel_table.h"

namespace castor {
namespace {

constexpr std::string_view kTitle = "castor cost model 4";
constexpr std::string_view kChecksumLabel = "checksum ";
constexpr int64_t kMaxFileBytes = 1 << 16;

// FNV-1a: against torn and edited files, not against malice.
std::string ChecksumLine(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char hex[17];
  std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(hash));
  return std::string(kChecksumLabel) + hex + "\n";
}

// The key on one line, whatever the device calls itself.
std::string KeyLine(std::string_view key) {
  std::string line = "key " + std::string(key);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  return line;
}

absl::Status Broken(std::string_view problem) {
  return absl::DataLossError("the cost model file " + std::string(problem));
}

// "improved_clustered float16 1.5 0 ...", one price per term.
bool ParseRow(const std::string& line, CostModel* model) {
  std::istringstream in(line);
  std::string kernel;
  std::string dtype;
  CostTerms prices;
  in >> kernel >> dtype;
  for (double& price : prices) {
    if (!(in >> price) || !std::isfinite(price) || price < 0) return false;
  }
  if (in.get() != std::istringstream::traits_type::eof()) return false;
  for (const KernelRow& row : kKernels) {
    for (const DType known : kFloatingDTypes) {
      if (NameOf(row.name) != kernel || NameOf(known) != dtype) continue;
      if (model->Knows(row.name, known)) return false;
      model->Set(row.name, known, prices);
      return true;
    }
  }
  return false;
}

}  // namespace

std::string FormatCosts(const CostModel& model, std::string_view key) {
  std::string text = std::string(kTitle) + "\n" + KeyLine(key) + "\n";
  for (const auto& [row, prices] : model.prices()) {
    text += std::string(NameOf(row.first)) + " " + std::string(NameOf(row.second));
    for (const double price : prices) {
      char digits[32];
      std::snprintf(digits, sizeof(digits), " %.17g", price);  // reads back as the same number
      text += digits;
    }
    text += '\n';
  }
  return text + ChecksumLine(text);
}

absl::StatusOr<CostModel> ParseCosts(std::string_view text, std::string_view key) {
  const size_t last = text.rfind(kChecksumLabel);
  if (last == std::string_view::npos || text.substr(last) != ChecksumLine(text.substr(0, last))) {
    return Broken("is damaged");
  }
  std::istringstream lines{std::string(text.substr(0, last))};
  std::string line;
  if (!std::getline(lines, line) || line != kTitle) return Broken("has an unknown format");
  if (!std::getline(lines, line) || line != KeyLine(key)) {
    return Broken("was measured on another device or build");
  }
  CostModel model;
  while (std::getline(lines, line)) {
    if (!ParseRow(line, &model)) return Broken("has a line that cannot be read");
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

}  // namespace castor
