#include "client/load/target/metrics_page.h"

#include <curl/curl.h>

#include <cstdlib>
#include <memory>

namespace castor::load {
namespace {

constexpr size_t kMaxPage = size_t{16} << 20;

size_t Append(char* data, size_t size, size_t count, void* page) {
  auto& text = *static_cast<std::string*>(page);
  if (text.size() + size * count > kMaxPage) return 0;  // curl gives up
  text.append(data, size * count);
  return size * count;
}

}  // namespace

MetricsPage FetchMetrics(const std::string& address) {
  const bool url = address.find("://") != std::string::npos;
  const std::string where = url ? address : "http://" + address + "/metrics";
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  if (curl == nullptr) return {};
  std::string page;
  long code = 0;
  curl_easy_setopt(curl.get(), CURLOPT_URL, where.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, 5L);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &page);
  if (curl_easy_perform(curl.get()) != CURLE_OK) return {};
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &code);
  return code == 200 ? ParseMetrics(page) : MetricsPage();
}

MetricsPage ParseMetrics(std::string_view text) {
  MetricsPage page;
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t space = line.rfind(' ');
    if (!line.starts_with("castor_") || space == std::string::npos) continue;
    page[line.substr(0, space)] = std::strtod(line.c_str() + space, nullptr);
  }
  return page;
}

}  // namespace castor::load
