// The header Accept of a scrape (RFC 9110, 12.5.1).

#include <algorithm>
#include <optional>

#include "server/metrics/metrics_page.h"

namespace castor::server {
namespace {

constexpr size_t kMaxRanges = 32;
constexpr int kMostQuality = 1000;  // in thousandths

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool Same(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
}

// Takes what is before the next `separator`, or all of it.
std::string_view TakeUpTo(char separator, std::string_view* rest) {
  const size_t end = std::min(rest->find(separator), rest->size());
  const std::string_view taken = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return Trimmed(taken);
}

// "0.75" is 750; at most three decimals.
std::optional<int> QualityOf(std::string_view text) {
  if (text.empty() || text.size() > 5 || (text[0] != '0' && text[0] != '1')) return std::nullopt;
  int quality = kMostQuality * (text[0] - '0');
  if (text.size() > 1 && text[1] != '.') return std::nullopt;
  int worth = kMostQuality / 10;
  for (size_t i = 2; i < text.size(); ++i, worth /= 10) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    quality += worth * (text[i] - '0');
  }
  return quality <= kMostQuality ? std::optional(quality) : std::nullopt;
}

struct Range {
  std::string_view type{};
  std::string_view version{};  // empty: any
  int quality = kMostQuality;
};

std::optional<Range> RangeOf(std::string_view text) {
  Range range{.type = TakeUpTo(';', &text)};
  while (!text.empty()) {
    std::string_view value = TakeUpTo(';', &text);
    const std::string_view name = TakeUpTo('=', &value);
    value = Trimmed(value);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    if (Same(name, "version")) range.version = value;
    if (!Same(name, "q")) continue;
    const std::optional<int> quality = QualityOf(value);
    if (!quality.has_value()) return std::nullopt;
    range.quality = *quality;
  }
  return range;
}

// The quality of a type by the ranges so far: the most exact one decides.
struct Offer {
  int exactness = 0;
  int quality = 0;

  void See(int exact, int wanted) {
    if (exact < exactness) return;
    quality = exact == exactness ? std::max(quality, wanted) : wanted;
    exactness = exact;
  }
};

}  // namespace

PageFormat FormatFor(std::string_view accept) {
  Offer open;
  Offer text;
  for (size_t i = 0; i < kMaxRanges && !accept.empty(); ++i) {
    const std::optional<Range> range = RangeOf(TakeUpTo(',', &accept));
    if (!range.has_value()) continue;
    const bool any_version = range->version.empty();
    if (Same(range->type, "application/openmetrics-text")) {
      if (any_version || range->version == "1.0.0") open.See(3, range->quality);
    } else if (Same(range->type, "text/plain")) {
      if (any_version || range->version == "0.0.4") text.See(3, range->quality);
    } else if (Same(range->type, "application/*")) {
      open.See(2, range->quality);
    } else if (Same(range->type, "text/*")) {
      text.See(2, range->quality);
    } else if (Same(range->type, "*/*")) {
      open.See(1, range->quality);
      text.See(1, range->quality);
    }
  }
  return open.quality > text.quality ? PageFormat::kOpenMetrics : PageFormat::kText;
}

}  // namespace castor::server
