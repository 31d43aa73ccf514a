// The server's own counters, as its /metrics shows them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace castor::bench {

class MetricsPage {
 public:
  // Of a server on this machine. A page that does not come is empty.
  static MetricsPage Fetch(int port);

  bool empty() const { return series_.empty(); }

  // The sum of the family's series whose labels contain `labels`; nullopt if there is none.
  std::optional<double> Sum(std::string_view family, std::string_view labels = "") const;

  // All series, by name and labels.
  const std::map<std::string, double>& series() const { return series_; }

 private:
  std::map<std::string, double> series_;
};

}  // namespace castor::bench
