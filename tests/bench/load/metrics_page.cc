#include "tests/bench/load/metrics_page.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>

namespace castor::bench {
namespace {

// Everything up to the end of the stream; "" if there is no connection.
std::string HttpGet(int port) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0) return "";
  const timeval patience = {.tv_sec = 10, .tv_usec = 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string page;
  constexpr std::string_view kRequest = "GET /metrics HTTP/1.0\r\n\r\n";
  if (connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      send(connection, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(kRequest.size())) {
    char buffer[16384];
    for (ssize_t got; (got = recv(connection, buffer, sizeof(buffer), 0)) > 0;) {
      page.append(buffer, static_cast<size_t>(got));
    }
  }
  close(connection);
  return page;
}

}  // namespace

MetricsPage MetricsPage::Fetch(int port) {
  MetricsPage page;
  std::istringstream lines(HttpGet(port));
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.rfind(' ');
    if (!line.starts_with("castor_") || space == std::string::npos) continue;
    page.series_[line.substr(0, space)] = std::strtod(line.c_str() + space, nullptr);
  }
  return page;
}

std::optional<double> MetricsPage::Sum(std::string_view family, std::string_view labels) const {
  std::optional<double> sum;
  for (const auto& [name, value] : series_) {
    const std::string_view bare = std::string_view(name).substr(0, name.find('{'));
    if (bare != family || name.find(labels) == std::string::npos) continue;
    sum = sum.value_or(0) + value;
  }
  return sum;
}

}  // namespace castor::bench
