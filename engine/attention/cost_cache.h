// A cost model in a file, for the next start on the same device with the same build.
//
// Text, one line per kernel and dtype, between the key that it was measured under and a checksum.
// Whatever is not exactly that is no cache: it is told why and left alone. Any thread may call
// these.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention/cost_model.h"

namespace castor::attention {

// The file's contents. `key` is one line: what must agree for the model to hold.
std::string FormatCosts(const CostModel& model, std::string_view key);
absl::StatusOr<CostModel> ParseCosts(std::string_view text, std::string_view key);

// The name of the file for `key` in `folder`.
std::string CostFile(const std::string& folder, std::string_view key);

// NOT_FOUND when there is no such file; any other error says what is wrong with it.
absl::StatusOr<CostModel> ReadCosts(const std::string& file, std::string_view key);

// Replaces the file in one step, making its folder if need be: readers see the old one or the new.
absl::Status WriteCosts(const std::string& file, const CostModel& model, std::string_view key);

}  // namespace castor::attention
