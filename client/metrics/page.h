// Parses a server's /metrics in Prometheus' text format or OpenMetrics.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace castor::client {

// Values of series by name and labels as written on the page:
// `castor_requests_total{code="OK",...}`.
using MetricsPage = std::map<std::string, double, std::less<>>;

// Parses a page from an untrusted peer. Skips comments, timestamps, exemplars, malformed lines,
// lines longer than 16 KiB, and the rest after 65,536 series. If a series occurs twice, the last
// value counts. Values may be NaN or infinite.
MetricsPage ParseMetrics(std::string_view text);

// Calls `visit` for each series of the family `name`, with the text between its braces ("" without
// braces) and its value.
void ForEachSeries(const MetricsPage& page, std::string_view name,
                   const std::function<void(std::string_view labels, double value)>& visit);

// The label's value in `labels`, the text between the braces; "" if it is not there.
std::string LabelOf(std::string_view labels, std::string_view name);

// The sum of the family's series whose labels contain the text `part`; nullopt if there is none.
std::optional<double> SumOf(const MetricsPage& page, std::string_view name,
                            std::string_view part = "");

}  // namespace castor::client
