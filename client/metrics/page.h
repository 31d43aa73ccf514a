// A server's own counts, as its /metrics shows them: Prometheus' text format, or OpenMetrics.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace castor::client {

// Series by name and labels as they stand on the page: `castor_requests_total{code="OK",...}`.
using MetricsPage = std::map<std::string, double, std::less<>>;

// Reads a page that anybody may have sent. What is no series is skipped: comments, lines that are
// malformed or longer than 16 KiB, timestamps, exemplars. So is what comes after 65,536 series. Of
// a series that is there twice the last counts. Values may be NaN or infinite.
MetricsPage ParseMetrics(std::string_view text);

// Calls `visit` for each series of the family `name`, with what stands between its braces ("" if
// there are none) and its value.
void ForEachSeries(const MetricsPage& page, std::string_view name,
                   const std::function<void(std::string_view labels, double value)>& visit);

// The label's value among `labels`, what stands between the braces; "" if it is not there.
std::string LabelOf(std::string_view labels, std::string_view name);

// The sum of the family's series whose labels contain the text `part`; nullopt if there is none.
std::optional<double> SumOf(const MetricsPage& page, std::string_view name,
                            std::string_view part = "");

}  // namespace castor::client
