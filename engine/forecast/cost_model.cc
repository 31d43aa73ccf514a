#include "engine/forecast/cost_model.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/regular_file.h"
#include "engine/kernel_table.h"

namespace castor {
namespace {

constexpr double kAssumedPrice = 2;

CostTerms Filled(double price) {
  CostTerms prices;
  prices.fill(price);
  return prices;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

CostTerms FitCosts(std::span<const CostSample> samples) {
  // The weight of the reference's proportions, in runs. A calibration has some fifteen per kernel.
  constexpr double kPrior = 0.5;
  // Runs with a larger relative error count less (iteratively reweighted least squares with Huber's
  // weights).
  constexpr double kFar = 0.15;
  constexpr int kRounds = 5;
  std::vector<double> ratios;
  for (const CostSample& sample : samples) {
    ratios.push_back(sample.us / Dot(sample.terms, Filled(1)));
  }
  const double usual = Median(std::move(ratios));
  CostTerms prices = Filled(usual);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<CostSample> weighted(samples.begin(), samples.end());
    for (CostSample& sample : weighted) {
      const double error = std::abs(Dot(sample.terms, prices) / sample.us - 1);
      sample.weight *= std::sqrt(kFar / std::max(error, kFar));
    }
    for (size_t t = 0; t < kCostTerms; ++t) {
      CostSample& prior = weighted.emplace_back(CostSample{.us = usual, .weight = kPrior});
      prior.terms[t] = 1;
    }
    prices = FitRelative<kCostTerms>(weighted);
  }
  return prices;
}

PredictedTime CostModel::Of(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                            std::span<const int32_t> cu_seqlens_k,
                            std::span<const attention::Place> places) const {
  constexpr auto kLaunch = static_cast<size_t>(CostTerm::kLaunch);
  const auto found = prices_.find({NameOf(spec.kernel), spec.dtype});
  const CostTerms prices = found == prices_.end() ? Filled(kAssumedPrice) : found->second;
  const CostTerms terms = CostTermsOf(spec, cu_seqlens_q, cu_seqlens_k, workers_, places);
  const double batch_us = terms[kLaunch] * prices[kLaunch];
  return {.batch_us = batch_us, .own_us = Dot(terms, prices) - batch_us};
}

std::optional<double> CostModel::Predict(const attention::Spec& spec,
                                         std::span<const int32_t> cu_seqlens_q,
                                         std::span<const int32_t> cu_seqlens_k) const {
  if (!Knows(NameOf(spec.kernel), spec.dtype)) return std::nullopt;
  return Of(spec, cu_seqlens_q, cu_seqlens_k).alone_us();
}

namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "castor cost model 5";
constexpr int64_t kMaxFileBytes = 1 << 16;

// A device's name in the key may not be valid UTF-8, which `replace` allows.
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
