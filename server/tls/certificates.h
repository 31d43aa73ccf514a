// What a TLS listener shows to its callers, and whom it trusts, out of PEM files.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/auth/live_files.h"
#include "server/options/access_options.h"

namespace castor::server {

using WallTime = std::chrono::system_clock::time_point;

struct Certificates {
  std::string chain;  // PEM, as read
  std::string key;
  std::string client_ca;
  WallTime expires{};            // the server's certificate
  WallTime client_ca_expires{};  // the first of the authorities to do so; unset without any
};

// Takes the texts of the three files. INVALID_ARGUMENT names the flag of the one that is no PEM,
// has expired or is not valid yet, or says that key and certificate are no pair. A function of its
// arguments.
absl::StatusOr<Certificates> ParseCertificates(std::string_view certificate, std::string_view key,
                                               std::string_view client_ca, WallTime now);

using LiveCertificates = LiveFiles<Certificates>;
absl::StatusOr<std::unique_ptr<LiveCertificates>> OpenCertificates(const TlsFiles& files);

}  // namespace castor::server
