// A cost model in a file, which servers share so that their automatic kernels choose alike.
//
// JSON: the key that it was measured under, and prices by kernel and dtype. Anything else is
// rejected with the reason and left alone. Any thread may call these.
//
// `key`: what must agree for the model to hold, the number of threads among it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/forecast/cost_model.h"

namespace castor {

// NOT_FOUND if there is no such file; any other error says what is wrong with it.
absl::StatusOr<CostModel> ReadCosts(const std::string& file, std::string_view key);

// Creates the file atomically. ALREADY_EXISTS if there is one by now; it stays as it is, so servers
// that start at the same time all use the first one's model.
absl::Status WriteCosts(const std::string& file, const CostModel& model, std::string_view key);

}  // namespace castor
