#include "engine/forecast/cost_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/regular_file.h"
#include "engine/kernel_table.h"

namespace castor {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "castor cost model 5";
constexpr int64_t kMaxFileBytes = 1 << 16;

// Whatever the device calls itself.
std::string TextOf(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status Broken(std::string_view problem) {
  return absl::DataLossError("the cost model file " + std::string(problem));
}

std::string NameOf(const CostModel::Key& key) {
  return std::string(NameOf(key.first)) + " " + std::string(NameOf(key.second));
}

bool ArePrices(const Json& json) {
  return json.is_array() && json.size() == kCostTerms &&
         std::all_of(json.begin(), json.end(),
                     [](const Json& price) { return price.is_number() && price >= 0; });
}

absl::StatusOr<CostModel> ParseCosts(std::string_view text, std::string_view key) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Broken("is damaged");
  if (json.value("format", Json()) != kFormat) return Broken("has an unknown format");
  if (TextOf(json.value("key", Json())) != TextOf(Json(key))) {
    return Broken("was measured on another device or build");
  }
  const Json prices = json.value("prices", Json());
  CostModel model;
  for (const KernelRow& row : kKernels) {
    for (const DType dtype : kFloatingDTypes) {
      const auto found = prices.find(NameOf({row.name, dtype}));
      if (found == prices.end()) continue;
      if (!ArePrices(*found)) return Broken("has prices that cannot be read");
      model.Set(row.name, dtype, found->get<CostTerms>());
    }
  }
  if (model.empty()) return Broken("holds no kernel");
  return model;
}

}  // namespace

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
  Json json = {{"format", kFormat}, {"key", key}, {"prices", Json::object()}};
  for (const auto& [of, prices] : model.prices()) json["prices"][NameOf(of)] = prices;
  out << TextOf(json);
  out.close();
  // Unlike rename, link does not replace an existing file.
  const int failure = !out.good() ? EIO : link(temporary.c_str(), file.c_str()) != 0 ? errno : 0;
  unlink(temporary.c_str());
  if (failure == 0) return absl::OkStatus();
  if (failure == EEXIST) return absl::AlreadyExistsError("there is a file " + file);
  return absl::UnavailableError("the cost model cannot be written to " + file);
}

}  // namespace castor
