// Who gets in, as files say: the listener's certificates and the callers. Each is what its files
// said when they last made sense; access_watch.h keeps them up to date.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/auth/caller_file.h"
#include "server/options/access_options.h"
#include "server/tls/certificates.h"

namespace castor::server {

struct Access {
  std::unique_ptr<LiveCertificates> certificates{};  // null: plaintext
  std::unique_ptr<LiveCallers> callers{};            // null: no such file

  // Reads the files. INVALID_ARGUMENT says what is wrong with one: a server does not start so.
  static absl::StatusOr<Access> Open(const AccessOptions& options);
};

}  // namespace castor::server
