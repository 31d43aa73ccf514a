// The file of callers: any text is refused, or makes a table that keeps its promises.

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "castor/v1/server.pb.h"
#include "engine/option_bounds.h"
#include "server/auth/caller_file.h"
#include "server/auth/caller_table.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

bool Within(int64_t value, castor::OptionBounds bounds) {
  return value >= bounds.low && value <= bounds.high;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor;
  static const auto* const linked = v1::ServerInfo::descriptor();  // its file has a service
  Require(linked != nullptr);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto callers = server::ParseCallers(text);
  if (!callers.ok()) {
    Require(!callers.status().message().empty());
    return 0;
  }
  Require(!callers->empty() && callers->size() > 0);
  Require(callers->FindToken(server::Digest{1}) == nullptr ||
          server::IsTenant(callers->FindToken(server::Digest{1})->name));
  for (const auto& [name, terms] : callers->tenants()) {
    Require(server::IsTenant(name) && callers->HasCaller(name));
    Require(terms.weight >= kMinTenantWeight && terms.weight <= kMaxTenantWeight);
    Require(Within(terms.max_queued_requests, kTenantQuotaBounds));
    Require(Within(terms.max_queued_tokens, kTenantQuotaBounds));
    Require(Within(terms.max_queued_bytes, kTenantQuotaBounds));
  }
  // Cut anywhere, it is refused: at its end, and at a place that depends on the text.
  const size_t end = text.rfind(server::kEndOfCallers) + server::kEndOfCallers.size();
  for (const size_t cut : {end - 1, std::hash<std::string_view>()(text) % end}) {
    Require(!server::ParseCallers(text.substr(0, cut)).ok());
  }
  return 0;
}
