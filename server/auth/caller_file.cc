#include "server/auth/caller_file.h"

#include <google/protobuf/descriptor.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/option_bounds.h"
#include "server/auth/caller_table.h"
#include "server/options/units.h"

namespace castor::server {
namespace {

constexpr size_t kMaxSanBytes = 256;
constexpr char kTenantSection[] = "tenant";
constexpr char kCallerSection[] = "caller";
constexpr char kEndSection[] = "end";

// No caller's quota is none at all: that is what removing its entry is for.
constexpr OptionBounds kQuotaBounds{1, kTenantQuotaBounds.high};

absl::Status Bad(const toml::source_region& where, const std::string& what) {
  return absl::InvalidArgumentError("line " + std::to_string(where.begin.line) + ": " + what);
}

// Whether a service or method of that name is known to this program.
bool IsCallable(const std::string& name) {
  const auto* const pool = google::protobuf::DescriptorPool::generated_pool();
  const size_t slash = name.find('/');
  const auto* const service = pool->FindServiceByName(name.substr(0, slash));
  if (service == nullptr || slash == std::string::npos) return service != nullptr;
  return service->FindMethodByName(name.substr(slash + 1)) != nullptr;
}

// One table of the file. Keys that were never asked for are unknown. Keeps the first error.
class Section {
 public:
  Section(const toml::table& table, std::string title) : table_(table), title_(std::move(title)) {}

  // The value under `key`, if it is there and a T; another type is an error.
  template <typename T>
  std::optional<T> Value(const char* key, const char* type) {
    taken_.insert(key);
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    const auto* const value = node->as<T>();
    if (value == nullptr) {
      Fail(*node, std::string("'") + key + "' must be " + type);
      return std::nullopt;
    }
    return value->get();
  }

  const toml::node* Node(const char* key) {
    taken_.insert(key);
    return table_.get(key);
  }

  // At `key`, or at the section where there is none.
  void FailAt(const char* key, const std::string& what) {
    const toml::node* const node = table_.get(key);
    Fail(node != nullptr ? *node : table_, what);
  }
  void Fail(const toml::node& node, const std::string& what) {
    error_.Update(Bad(node.source(), what));
  }

  // The first error, or that of a key which was never asked for.
  absl::Status Finish() {
    for (const auto& [key, node] : table_) {
      if (!taken_.contains(std::string(key.str()))) {
        Fail(node, "unknown key '" + std::string(key.str()) + "' in " + title_);
      }
    }
    return error_;
  }

 private:
  const toml::table& table_;
  const std::string title_;
  std::set<std::string> taken_;
  absl::Status error_;
};

void ReadAllow(Section& section, Credential& credential) {
  const toml::node* const node = section.Node("allow");
  if (node == nullptr) {
    return section.FailAt("allow", "caller '" + credential.name +
                                       "' needs 'allow': what it may call, or [\"*\"] for every "
                                       "method");
  }
  const toml::array* const array = node->as_array();
  if (array == nullptr) return section.Fail(*node, "'allow' must be an array of strings");
  for (const toml::node& element : *array) {
    const auto* const text = element.as_string();
    if (text == nullptr) return section.Fail(element, "'allow' must hold only strings");
    const std::string& name = text->get();
    if (name == kEveryMethod) {
      credential.every_method = true;
    } else if (name == kMetricsPermission) {
      credential.metrics = true;
    } else if (IsCallable(name)) {
      credential.allow.push_back(name);
    } else {
      section.Fail(element, "'allow' names '" + name +
                                "', which is not a SERVICE, a SERVICE/METHOD, '*' or 'metrics'");
    }
  }
}

// A date is its first moment, in UTC. A time needs its offset: two machines may read it.
void ReadExpires(Section& section, Credential& credential) {
  using std::chrono::days;
  const toml::node* const node = section.Node("expires");
  if (node == nullptr) {
    return section.FailAt("expires",
                          "caller '" + credential.name + "' needs 'expires': a date, or \"never\"");
  }
  const auto* const text = node->as_string();
  if (text != nullptr && text->get() == kNever) return;
  toml::date date{};
  std::chrono::nanoseconds time{0};
  if (const auto* only = node->as_date()) {
    date = only->get();
  } else if (const auto* both = node->as_date_time(); both != nullptr && both->get().offset) {
    const toml::date_time& value = both->get();
    date = value.date;
    time = std::chrono::hours(value.time.hour) + std::chrono::minutes(value.time.minute) +
           std::chrono::seconds(value.time.second) - std::chrono::minutes(value.offset->minutes);
  } else {
    return section.Fail(*node,
                        "'expires' must be a date, a time with its offset, such as "
                        "2027-05-01T00:00:00Z, or \"never\"");
  }
  const std::chrono::year_month_day day(std::chrono::year(date.year),
                                        std::chrono::month(date.month), std::chrono::day(date.day));
  constexpr int kFirstYear = 1970;  // the clock counts nanoseconds, and ends in 2262
  constexpr int kLastYear = 2200;
  if (!day.ok() || date.year < kFirstYear || date.year > kLastYear) {
    return section.Fail(*node, "'expires' must be a date from 1970 to 2200");
  }
  credential.expires = std::chrono::time_point_cast<std::chrono::system_clock::duration>(
      std::chrono::sys_days(day) + time);
}

absl::Status ReadCaller(const toml::table& table, CallerTable& callers) {
  Section section(table, "[[caller]]");
  Credential credential;
  credential.name = section.Value<std::string>("name", "a string").value_or("");
  if (!IsTenant(credential.name)) {
    section.FailAt("name", "a caller needs a 'name' of 1 to 64 letters, digits, '.', '_', '-'");
  }
  ReadAllow(section, credential);
  ReadExpires(section, credential);
  const auto sha256 = section.Value<std::string>("sha256", "a string");
  const auto san = section.Value<std::string>("san", "a string");
  if (absl::Status read = section.Finish(); !read.ok()) return read;
  if (sha256.has_value() == san.has_value()) {
    return Bad(table.source(), "caller '" + credential.name + "' needs either 'sha256' or 'san'");
  }
  bool added = false;
  if (sha256) {
    const std::optional<Digest> digest = FromHex(*sha256);
    if (!digest) section.FailAt("sha256", "'sha256' must be 64 hexadecimal digits");
    if (digest) added = callers.AddToken(*digest, std::move(credential));
    if (digest && !added) section.FailAt("sha256", "this token is given twice");
  } else {
    const bool printable =
        std::all_of(san->begin(), san->end(), [](char c) { return c > ' ' && c <= '~'; });
    if (san->empty() || san->size() > kMaxSanBytes || !printable) {
      section.FailAt("san", "'san' must be 1 to 256 visible characters");
    } else if (!callers.AddName(*san, std::move(credential))) {
      section.FailAt("san", "this certificate name is given twice");
    }
  }
  return section.Finish();
}

void ReadQuota(Section& section, const char* key, OptionBounds bounds, int64_t* quota) {
  const auto value = section.Value<int64_t>(key, "an integer");
  if (!value) return;
  if (*value < bounds.low || *value > bounds.high) {
    return section.FailAt(key, std::string("'") + key + "' is out of range (" +
                                   std::to_string(bounds.low) + " to " +
                                   std::to_string(bounds.high) + "); without it there is no limit");
  }
  *quota = *value;
}

// A size as text, such as "256MiB", or a number of bytes.
void ReadBytes(Section& section, const char* key, OptionBounds bounds, int64_t* quota) {
  const toml::node* const node = section.Node(key);
  if (node == nullptr || node->is_integer()) return ReadQuota(section, key, bounds, quota);
  const auto* const text = node->as_string();
  const std::optional<int64_t> bytes = text == nullptr ? std::nullopt : ParseBytes(text->get());
  if (!bytes || *bytes < bounds.low || *bytes > bounds.high) {
    return section.Fail(*node, std::string("'") + key +
                                   "' must be a size such as \"256MiB\"; without it there is no "
                                   "limit");
  }
  *quota = *bytes;
}

absl::StatusOr<TenantTerms> ReadTerms(const toml::table& table, const std::string& name) {
  Section section(table, "[tenant." + name + "]");
  TenantTerms terms;
  const toml::node* const weight = section.Node("weight");
  if (weight != nullptr) {
    const std::optional<double> value = weight->value<double>();
    if (weight->is_number() && value && *value >= kMinTenantWeight && *value <= kMaxTenantWeight) {
      terms.weight = *value;
    } else {
      section.Fail(*weight, "'weight' must be a number from 0.001 to 1000");
    }
  }
  ReadQuota(section, "max_queued_requests", kQuotaBounds, &terms.max_queued_requests);
  ReadQuota(section, "max_queued_tokens", kQuotaBounds, &terms.max_queued_tokens);
  ReadBytes(section, "max_queued_bytes", kQuotaBounds, &terms.max_queued_bytes);
  if (absl::Status read = section.Finish(); !read.ok()) return read;
  return terms;
}

absl::Status ReadTenants(const toml::node& node, CallerTable& callers) {
  const toml::table* const tenants = node.as_table();
  if (tenants == nullptr) return Bad(node.source(), "'tenant' must be sections [tenant.NAME]");
  for (const auto& [key, value] : *tenants) {
    const std::string name(key.str());
    const toml::table* const table = value.as_table();
    if (table == nullptr) return Bad(value.source(), "'tenant' must be sections [tenant.NAME]");
    if (!callers.HasCaller(name)) {
      return Bad(value.source(), "[tenant." + name + "]: no caller has this name");
    }
    absl::StatusOr<TenantTerms> terms = ReadTerms(*table, name);
    if (!terms.ok()) return terms.status();
    callers.SetTenant(name, *std::move(terms));
  }
  return absl::OkStatus();
}

absl::StatusOr<CallerTable> ReadFile(const toml::table& file) {
  CallerTable callers;
  if (const toml::node* node = file.get(kCallerSection)) {
    const toml::array* const array = node->as_array();
    if (array == nullptr) return Bad(node->source(), "'caller' must be sections [[caller]]");
    for (const toml::node& element : *array) {
      const toml::table* const table = element.as_table();
      if (table == nullptr) return Bad(element.source(), "'caller' must be sections [[caller]]");
      if (absl::Status read = ReadCaller(*table, callers); !read.ok()) return read;
    }
  }
  // An empty file is also what a full disk leaves.
  if (callers.empty()) return absl::InvalidArgumentError("has no [[caller]]");
  if (const toml::node* node = file.get(kTenantSection)) {
    if (absl::Status read = ReadTenants(*node, callers); !read.ok()) return read;
  }
  for (const auto& [key, node] : file) {
    const toml::table* const table = node.as_table();
    const bool ends = key.str() == kEndSection && table != nullptr && table->empty();
    if (!ends && key.str() != kCallerSection && key.str() != kTenantSection) {
      return Bad(node.source(), "unknown key '" + std::string(key.str()) + "'");
    }
  }
  return callers;
}

std::string_view WithoutSpaceAtEnd(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);  // npos + 1 is 0
}

// The text before the line [end], if the file ends with it. TOML allows a section only once, so no
// proper prefix of such a file ends with that line as well.
std::optional<std::string_view> BeforeEnd(std::string_view text) {
  text = WithoutSpaceAtEnd(text);
  if (!text.ends_with(kEndOfCallers)) return std::nullopt;
  text.remove_suffix(kEndOfCallers.size());
  if (!text.empty() && text.back() != '\n') return std::nullopt;
  return text;
}

// The text with '?' for characters beyond ASCII in comments; elsewhere they are an error. No value
// needs them, and the TOML library's code for them must not be reached.
absl::StatusOr<std::string> InAscii(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string ascii(text);
  int line = 1;
  bool comment = false;  // or a string with a '#' in it, which is wrong later
  for (char& c : ascii) {
    if (c == '\n') {
      ++line;
      comment = false;
    } else if (c == '#') {
      comment = true;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      if (!comment) {
        return absl::InvalidArgumentError("line " + std::to_string(line) +
                                          ": only comments may have characters beyond ASCII");
      }
      c = '?';
    }
  }
  return ascii;
}

}  // namespace

absl::StatusOr<CallerTable> ParseCallers(std::string_view text) {
  const absl::StatusOr<std::string> ascii = InAscii(text);
  if (!ascii.ok()) return ascii.status();
  try {
    const toml::table file = toml::parse(*ascii);
    if (!BeforeEnd(*ascii)) {
      return absl::InvalidArgumentError(
          "its last line is not [end], so some of it may be missing. If it is whole, add that "
          "line; each [[caller]] also needs 'allow', [\"*\"] for every method, and 'expires', "
          "\"never\" or a date");
    }
    return ReadFile(file);
  } catch (const toml::parse_error& error) {
    return Bad(error.source(), std::string(error.description()));
  }
}

absl::StatusOr<std::string> AddCaller(std::string_view file, std::string_view entry) {
  std::string_view others;
  if (!file.empty()) {
    if (const auto callers = ParseCallers(file); !callers.ok()) return callers.status();
    others = WithoutSpaceAtEnd(*BeforeEnd(file));
  }
  std::string text(others);
  text.append(others.empty() ? "" : "\n\n").append(entry).append("\n[end]\n");
  if (const auto callers = ParseCallers(text); !callers.ok()) return callers.status();
  return text;
}

absl::StatusOr<std::unique_ptr<LiveCallers>> OpenCallers(const std::string& path) {
  return LiveCallers::Open(
      {path}, [path](const std::vector<std::string>& texts) -> absl::StatusOr<CallerTable> {
        auto callers = ParseCallers(texts[0]);
        if (callers.ok()) return callers;
        return absl::InvalidArgumentError(path + ": " + std::string(callers.status().message()));
      });
}

}  // namespace castor::server
