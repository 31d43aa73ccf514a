// A server's own counts, as its /metrics shows them.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace castor::load {

// Series by name and labels, as they stand on the page: `castor_requests_total{code="OK",...}`.
using MetricsPage = std::map<std::string, double>;

// Of the endpoint at `address` (HOST:PORT, or a URL); empty if it does not answer in 5 s. Blocks.
MetricsPage FetchMetrics(const std::string& address);

MetricsPage ParseMetrics(std::string_view text);

}  // namespace castor::load
