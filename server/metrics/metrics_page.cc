#include "server/metrics/metrics_page.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <new>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace castor::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr int kPageDigits = 16;       // as prometheus-cpp writes them
constexpr size_t kUsualSeries = 120;  // bytes
constexpr std::string_view kTotal = "_total";

void AppendCount(uint64_t value, std::string* out) {
  std::array<char, 24> text;
  out->append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

void AppendValue(double value, std::string* out) {
  if (std::isnan(value)) {
    out->append("NaN");
  } else if (std::isinf(value)) {
    out->append(value > 0 ? "+Inf" : "-Inf");
  } else {
    std::array<char, 32> text;
    out->append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value,
                                           std::chars_format::general, kPageDigits)
                                 .ptr);
  }
}

// With a point or an exponent.
void AppendFloat(double value, std::string* out) {
  const size_t begin = out->size();
  AppendValue(value, out);
  if (std::isfinite(value) && out->find_first_of(".e", begin) == std::string::npos) {
    out->append(".0");
  }
}

void AppendEscaped(std::string_view text, bool quotes, std::string* out) {
  for (const char c : text) {
    if (c == '\\') {
      out->append("\\\\");
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '"' && quotes) {
      out->append("\\\"");
    } else {
      out->push_back(c);
    }
  }
}

class PageWriter {
 public:
  PageWriter(PageFormat format, const ExemplarsOf& exemplars, std::string* out)
      : open_(format == PageFormat::kOpenMetrics), exemplars_(exemplars), out_(*out) {}

  void Write(const MetricFamily& family) {
    std::string_view name = family.name;
    const bool counter = family.type == MetricType::Counter;
    // A counter's family has no suffix in OpenMetrics; its samples have.
    if (open_ && counter && name.ends_with(kTotal)) name.remove_suffix(kTotal.size());
    out_.append("# HELP ").append(name).append(" ");
    AppendEscaped(family.help, /*quotes=*/open_, &out_);
    out_.append("\n# TYPE ").append(name).append(" ").append(TypeOf(family)).append("\n");
    for (const ClientMetric& series : family.metric) {
      if (family.type == MetricType::Histogram) {
        WriteHistogram(family, series);
      } else {
        Begin(family.name, "", series);
        AppendValue(counter ? series.counter.value : series.gauge.value, &out_);
        out_.push_back('\n');
      }
    }
  }

 private:
  std::string_view TypeOf(const MetricFamily& family) const {
    switch (family.type) {
      case MetricType::Counter:
        return "counter";
      case MetricType::Histogram:
        return "histogram";
      default:
        return "gauge";
    }
  }

  // The name and labels of a sample, up to its value.
  void Begin(std::string_view name, std::string_view suffix, const ClientMetric& series,
             const double* le = nullptr) {
    out_.append(name).append(suffix);
    char separator = '{';
    for (const ClientMetric::Label& label : series.label) {
      out_.push_back(separator);
      out_.append(label.name).append("=\"");
      AppendEscaped(label.value, /*quotes=*/true, &out_);
      out_.push_back('"');
      separator = ',';
    }
    if (le != nullptr) {
      out_.push_back(separator);
      out_.append("le=\"");
      AppendFloat(*le, &out_);
      out_.push_back('"');
      separator = ',';
    }
    out_.append(separator == '{' ? " " : "} ");
  }

  void WriteHistogram(const MetricFamily& family, const ClientMetric& series) {
    const ClientMetric::Histogram& histogram = series.histogram;
    std::vector<std::optional<Exemplar>> exemplars;
    if (open_ && exemplars_) exemplars = exemplars_(family, series);
    for (size_t i = 0; i < histogram.bucket.size(); ++i) {
      Begin(family.name, "_bucket", series, &histogram.bucket[i].upper_bound);
      AppendCount(histogram.bucket[i].cumulative_count, &out_);
      if (i < exemplars.size() && exemplars[i].has_value()) Write(*exemplars[i]);
      out_.push_back('\n');
    }
    Begin(family.name, "_sum", series);
    AppendValue(histogram.sample_sum, &out_);
    out_.push_back('\n');
    Begin(family.name, "_count", series);
    AppendCount(histogram.sample_count, &out_);
    out_.push_back('\n');
  }

  // ` # {trace_id="...",span_id="..."} 0.0123 1700000000.123`: 63 of the 128 characters that names
  // and values may have.
  void Write(const Exemplar& exemplar) {
    out_.append(" # {trace_id=\"").append(ToHex(exemplar.of.trace));
    out_.append("\",span_id=\"").append(ToHex(exemplar.of.span)).append("\"} ");
    AppendValue(exemplar.value, &out_);
    const int64_t ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(exemplar.at.time_since_epoch())
            .count();
    out_.push_back(' ');
    AppendCount(static_cast<uint64_t>(ms / 1000), &out_);
    const std::string fraction = std::to_string(1000 + ms % 1000);
    out_.append(".").append(fraction, 1, 3);
  }

  const bool open_;
  const ExemplarsOf& exemplars_;
  std::string& out_;
};

}  // namespace

const char* ContentTypeOf(PageFormat format) {
  return format == PageFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

PageFormat FormatFor(std::string_view accept) {
  const bool named = accept.find("application/openmetrics-text") != std::string_view::npos;
  return named ? PageFormat::kOpenMetrics : PageFormat::kText;
}

bool TakesGzip(std::string_view accept_encoding) {
  std::string plain;
  for (const char c : accept_encoding) {
    if (c != ' ' && c != '\t') plain.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
  }
  for (const std::string& coding : std::vector<std::string>(absl::StrSplit(plain, ','))) {
    if (coding == "gzip") return true;
    // A weight of 0 to 1; 0 is a refusal.
    if (coding.starts_with("gzip;q=")) return coding.find_first_not_of("0.", 7) != coding.npos;
  }
  return false;
}

std::string Gzip(std::string_view page) {
  constexpr int kGzipWindow = 15 + 16, kMemory = 8;
  z_stream stream{};
  const int begun =
      deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY);
  if (begun != Z_OK) throw std::bad_alloc();
  std::string packed(deflateBound(&stream, page.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(page.data()));
  stream.avail_in = static_cast<uInt>(page.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);  // it has room for all
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string WritePage(PageFormat format, const std::vector<MetricFamily>& families,
                      const ExemplarsOf& exemplars) {
  std::string page;
  size_t series = 0;
  for (const MetricFamily& family : families) {
    for (const ClientMetric& metric : family.metric) {
      series += family.type == MetricType::Histogram ? metric.histogram.bucket.size() + 2 : 1;
    }
  }
  page.reserve(series * kUsualSeries);
  PageWriter writer(format, exemplars, &page);
  for (const MetricFamily& family : families) {
    if (!family.metric.empty()) writer.Write(family);
  }
  if (format == PageFormat::kOpenMetrics) page.append("# EOF\n");
  return page;
}

void Exemplars::Add(double value, const TraceContext& of) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const Exemplar exemplar{.value = value, .at = std::chrono::system_clock::now(), .of = of};
  MutexLock lock(mu_);
  last_[static_cast<size_t>(bucket)] = exemplar;
}

std::vector<std::optional<Exemplar>> Exemplars::Read() const {
  MutexLock lock(mu_);
  return last_;
}

}  // namespace castor::server
