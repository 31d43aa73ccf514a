#include "client/metrics/page.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace castor::client {
namespace {

constexpr size_t kMaxSeries = 65'536;
constexpr size_t kLongestLine = size_t{16} << 10;
constexpr std::string_view kBlanks = " \t\r";

bool InName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == ':';
}

// How many characters `text` begins with that a name may have.
size_t NameSize(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), InName);
  return static_cast<size_t>(end - text.begin());
}

// What follows the blanks at its beginning.
std::string_view Skipped(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
}

// `text` begins with a quote: the size of what is quoted, with both quotes; 0 if it does not end.
size_t QuotedSize(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return 0;
}

// `text` begins with a brace: the size up to the one that closes it, braces within quotes aside; 0
// if there is none.
size_t BracedSize(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '}') return i + 1;
    if (text[i] != '"') continue;
    const size_t quoted = QuotedSize(text.substr(i));
    if (quoted == 0) return 0;
    i += quoted - 1;
  }
  return 0;
}

// Adds a line's series, if it is one.
void ParseLine(std::string_view line, MetricsPage* page) {
  line = Skipped(line);
  const size_t name = NameSize(line);
  if (name == 0 || (line[0] >= '0' && line[0] <= '9')) return;
  size_t key = name;
  if (key < line.size() && line[key] == '{') {
    const size_t braces = BracedSize(line.substr(key));
    if (braces == 0) return;
    key += braces;
  } else if (key == line.size() || kBlanks.find(line[key]) == std::string_view::npos) {
    return;
  }
  // A timestamp or an exemplar may follow the value.
  std::string_view word = Skipped(line.substr(key));
  word = word.substr(0, word.find_first_of(kBlanks));
  double value = 0;
  if (word.find_first_of("xX") != std::string_view::npos) return;  // not in hexadecimal
  if (!absl::SimpleAtod(absl::string_view(word.data(), word.size()), &value)) return;
  page->insert_or_assign(std::string(line.substr(0, key)), value);
}

std::string Unescaped(std::string_view quoted) {
  std::string text;
  for (size_t i = 0; i < quoted.size(); ++i) {
    if (quoted[i] != '\\' || i + 1 == quoted.size()) {
      text += quoted[i];
    } else {
      ++i;
      text += quoted[i] == 'n' ? '\n' : quoted[i];
    }
  }
  return text;
}

}  // namespace

MetricsPage ParseMetrics(std::string_view text) {
  MetricsPage page;
  while (!text.empty() && page.size() < kMaxSeries) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.size() <= kLongestLine) ParseLine(line, &page);
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
    const std::string_view after = Skipped(labels.substr(size));
    if (!after.starts_with('=')) return "";
    const std::string_view value = Skipped(after.substr(1));
    const size_t quoted = value.starts_with('"') ? QuotedSize(value) : 0;
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
