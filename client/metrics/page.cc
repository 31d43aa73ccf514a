#include "client/metrics/page.h"

#include <algorithm>

#include "absl/strings/numbers.h"

namespace castor::client {
namespace {

constexpr size_t kMaxSeries = 65'536;
constexpr size_t kLongestLine = size_t{16} << 10;
constexpr std::string_view kBlanks = " \t\r";

// The size of the name that `text` begins with.
size_t NameSize(std::string_view text) {
  constexpr std::string_view kInName =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:";
  return std::min(text.find_first_not_of(kInName), text.size());
}

// The text without leading blanks.
std::string_view SkipBlanks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
}

// The size of `text` up to and including the first `end` outside of quotes; 0 if there is none.
size_t SizeTo(char end, std::string_view text, bool quoted) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == end && (end == '"' || !quoted)) return i + 1;
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '\\' && quoted) ++i;
  }
  return 0;
}

// Adds the line's series, if it has one.
void ParseLine(std::string_view line, MetricsPage* page) {
  line = SkipBlanks(line);
  size_t key = NameSize(line);
  if (key == 0 || key == line.size() || (line[0] >= '0' && line[0] <= '9')) return;
  if (line[key] == '{') {
    const size_t braces = SizeTo('}', line.substr(key), false);
    if (braces == 0) return;
    key += braces;
  } else if (kBlanks.find(line[key]) == std::string_view::npos) {
    return;
  }
  // A timestamp or an exemplar may follow the value.
  std::string_view word = SkipBlanks(line.substr(key));
  word = word.substr(0, word.find_first_of(kBlanks));
  double value = 0;
  if (word.find_first_of("xX") != std::string_view::npos) {
    return;  // SimpleAtod reads hexadecimal, pages have none
  }
  if (!absl::SimpleAtod({word.data(), word.size()}, &value)) return;
  page->insert_or_assign(std::string(line.substr(0, key)), value);
}

std::string Unescaped(std::string_view quoted) {
  std::string text;
  for (size_t i = 0; i < quoted.size(); ++i) {
    const bool escape = quoted[i] == '\\' && i + 1 < quoted.size();
    if (escape) ++i;
    text += escape && quoted[i] == 'n' ? '\n' : quoted[i];
  }
  return text;
}

}  // namespace

MetricsPage ParseMetrics(std::string_view text) {
  MetricsPage page;
  while (!text.empty() && page.size() < kMaxSeries) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.size() <= kLongestLine) ParseLine(line, &page);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return page;
}

void ForEachSeries(const MetricsPage& page, std::string_view name,
                   const std::function<void(std::string_view labels, double value)>& visit) {
  if (const auto bare = page.find(name); bare != page.end()) visit("", bare->second);
  const std::string start = std::string(name) + "{";
  for (auto series = page.lower_bound(start);
       series != page.end() && series->first.starts_with(start); ++series) {
    const std::string_view labels = std::string_view(series->first).substr(start.size());
    visit(labels.substr(0, labels.size() - 1), series->second);
  }
}

std::string LabelOf(std::string_view labels, std::string_view name) {
  for (;;) {
    const size_t start = labels.find_first_not_of(", \t");
    if (start == std::string_view::npos) return "";
    labels.remove_prefix(start);
    const size_t size = NameSize(labels);
    const std::string_view after = SkipBlanks(labels.substr(size));
    if (!after.starts_with('=')) return "";
    const std::string_view value = SkipBlanks(after.substr(1));
    const size_t quoted = value.starts_with('"') ? SizeTo('"', value, true) : 0;
    if (quoted == 0) return "";
    if (labels.substr(0, size) == name) return Unescaped(value.substr(1, quoted - 2));
    labels = value.substr(quoted);
  }
}

std::optional<double> SumOf(const MetricsPage& page, std::string_view name, std::string_view part) {
  std::optional<double> sum;
  ForEachSeries(page, name, [&](std::string_view labels, double value) {
    if (labels.find(part) != std::string_view::npos) sum = sum.value_or(0) + value;
  });
  return sum;
}

}  // namespace castor::client
