// Decides which calls are let in: those of callers in the file of callers or, without a file, of
// clients with a certificate of the listener's authorities. Health checks need no credentials,
// since probes have none; Health.List does, because it names the models.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/auth/caller_file.h"
#include "server/metrics/metrics_access.h"
#include "server/transport/call.h"

namespace castor::server {

// Calls and scrapes that were refused: counted by reason, and logged with a rate limit. The log
// never shows the credential. Any thread may call anything.
class RejectionLog {
 public:
  explicit RejectionLog(AccessMetrics& metrics) : metrics_(metrics) {}

  // Counts a refusal and returns the error for the caller. `who` is the caller's name if it is
  // known, `what` the method.
  absl::Status Refuse(RefusedCaller reason, std::string_view who, std::string_view what,
                      std::string_view peer);

 private:
  struct LastLogged {
    std::chrono::steady_clock::time_point last{};
    int64_t since = 0;  // rejections since the last line
  };

  AccessMetrics& metrics_;

  Mutex mu_;
  std::array<LastLogged, kRefusedCallers> last_logged_ ABSL_GUARDED_BY(mu_);
};

// The maker of a call. Both names are empty where callers do not identify themselves.
struct Caller {
  std::string name;    // for logs
  std::string tenant;  // shares the engine's budgets; owns the regions it registers
};

// Names the caller of a call, or refuses it. MessageService asks for every call of every method
// when the call's headers have arrived, before its message is read. No method can be added without
// it.
class Authorizer {
 public:
  virtual ~Authorizer() = default;

  // `method` is "/package.Service/Method". Errors: UNAUTHENTICATED where it is not known who calls,
  // PERMISSION_DENIED where that caller may not. Runs on gRPC's threads; must not block.
  virtual absl::StatusOr<Caller> Authorize(const Call& call, std::string_view method) const = 0;
};

// Lets every call in, as the tenant that its metadata names. INVALID_ARGUMENT if that is not a
// valid tenant's name.
class OpenToAll final : public Authorizer {
 public:
  absl::StatusOr<Caller> Authorize(const Call& call, std::string_view method) const override;
};

class CallerAuthorizer final : public Authorizer {
 public:
  using Now = std::function<std::chrono::system_clock::time_point()>;

  // `callers`: null where only certificates count. All must outlive this object. `now` is the clock
  // that credentials expire by.
  CallerAuthorizer(const LiveCallers* callers, RejectionLog& rejections,
                   Now now = &std::chrono::system_clock::now);

  // A bearer token takes precedence over a certificate.
  absl::StatusOr<Caller> Authorize(const Call& call, std::string_view method) const override;

  // The same for a reader of /metrics, by the header `authorization` alone: a bearer token, or
  // Basic with the caller's name and its token as the password. Empty: no header.
  absl::Status AuthorizeScrape(std::string_view authorization, std::string_view peer) const;

 private:
  // The caller's credential, or why the call is refused.
  struct Verdict {
    const Credential* credential = nullptr;
    RefusedCaller reason = RefusedCaller::kNoCredential;
  };
  Verdict ByToken(const CallerTable& callers, std::string_view token) const;
  Verdict ByCertificate(const CallerTable& callers, const Call& call) const;
  absl::StatusOr<Caller> AnyCertificate(const Call& call, std::string_view method) const;

  const LiveCallers* const callers_;
  RejectionLog& rejections_;
  const Now now_;
};

}  // namespace castor::server
