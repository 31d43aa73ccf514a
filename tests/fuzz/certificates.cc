// The listener's files: certificate, key and client authorities, which a line "%%" separates.

#include "server/tls/certificates.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using castor::server::ParseCertificates;
  constexpr std::string_view kSeparator = "%%\n";
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::string_view texts[3];
  for (std::string_view& text : texts) {
    const size_t end = rest.find(kSeparator);
    text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + kSeparator.size());
  }
  // A day on which the seeds are valid.
  const auto now = std::chrono::system_clock::from_time_t(1'800'000'000);
  const auto read = ParseCertificates(texts[0], texts[1], texts[2], now);
  if (!read.ok()) {
    // It names the flag.
    if (std::string_view(read.status().message().data(), 6) != "--tls-") std::abort();
    return 0;
  }
  if (read->chain != texts[0] || read->expires <= now) std::abort();
  if (!texts[2].empty() && read->client_ca_expires <= now) std::abort();
  return 0;
}
