// Lets in whom the file of callers names, or, without a file, whoever has a certificate of the
// listener's authorities. Health is open to all: probes have no credentials, and learn nothing;
// but its List names the models.
#pragma once

#include <grpcpp/server_context.h>

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

namespace castor::server {

// Calls and scrapes that were not let in: counted by reason, and told in the log, though not one by
// one: whoever can be refused can be refused a million times. Never with what was presented.

// Any thread may call anything.
class RejectionLog {
 public:
  explicit RejectionLog(AccessMetrics& metrics) : metrics_(metrics) {}

  // Counts one, and returns the error for the caller. `who` is the caller's name where it is known,
  // `what` the method.
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

// Who calls, and whether they may.
//
// MessageService asks this for every call of every method of ours, when the call's headers are
// there and before its message is read. A method cannot be added without it.

// Who makes a call. Both are empty where nobody is told from anybody else.
struct Caller {
  std::string name;    // for logs
  std::string tenant;  // who shares its budgets and owns what it leaves on the server
};

class Authorizer {
 public:
  virtual ~Authorizer() = default;

  // `context` has the call's metadata and what the connection's handshake said of its peer;
  // `method` is "/package.Service/Method". Errors: UNAUTHENTICATED where it is not known who calls,
  // PERMISSION_DENIED where that caller may not. Runs on gRPC's threads; must not block.
  virtual absl::StatusOr<Caller> Authorize(const grpc::ServerContextBase& context,
                                           std::string_view method) const = 0;
};

// Everybody may do everything, as the tenant that their metadata names. INVALID_ARGUMENT for what
// is no tenant's name.
class OpenToAll final : public Authorizer {
 public:
  absl::StatusOr<Caller> Authorize(const grpc::ServerContextBase& context,
                                   std::string_view method) const override;
};

class CallerAuthorizer final : public Authorizer {
 public:
  using Now = std::function<std::chrono::system_clock::time_point()>;

  // `callers`: null where only certificates count. All must outlive this object. `now` is the clock
  // that credentials expire by.
  CallerAuthorizer(const LiveCallers* callers, RejectionLog& rejections,
                   Now now = &std::chrono::system_clock::now);

  // A bearer token wins over a certificate: whoever sends one says who they are.
  absl::StatusOr<Caller> Authorize(const grpc::ServerContextBase& context,
                                   std::string_view method) const override;

  // The same for a reader of /metrics, by the header `authorization` alone: a bearer token, or
  // Basic with the caller's name and its token as the password. Empty: no header.
  absl::Status AuthorizeScrape(std::string_view authorization, std::string_view peer) const;

 private:
  // Who calls, or why they are refused.
  struct Verdict {
    const Credential* credential = nullptr;
    RefusedCaller reason = RefusedCaller::kNoCredential;
  };
  Verdict ByToken(const CallerTable& callers, std::string_view token) const;
  Verdict ByCertificate(const CallerTable& callers, const grpc::ServerContextBase& context) const;
  absl::StatusOr<Caller> AnyCertificate(const grpc::ServerContextBase& context,
                                        std::string_view method) const;

  const LiveCallers* const callers_;
  RejectionLog& rejections_;
  const Now now_;
};

}  // namespace castor::server
