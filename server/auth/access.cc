#include "server/auth/access.h"

#include <utility>

namespace castor::server {

absl::StatusOr<Access> Access::Open(const AccessOptions& options) {
  Access access;
  if (options.tls.on()) {
    auto certificates = OpenCertificates(options.tls);
    if (!certificates.ok()) return certificates.status();
    access.certificates = *std::move(certificates);
  }
  if (!options.callers.empty()) {
    auto callers = OpenCallers(options.callers);
    if (!callers.ok()) return callers.status();
    access.callers = *std::move(callers);
  }
  return access;
}

}  // namespace castor::server
