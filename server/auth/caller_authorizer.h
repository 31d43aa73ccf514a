// Lets in whom the file of callers names, or, without a file, whoever has a certificate of the
// listener's authorities. Health is open to all: probes have no credentials, and learn nothing.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>
#include <functional>
#include <string_view>

#include "server/auth/authorizer.h"
#include "server/auth/caller_file.h"
#include "server/auth/refusals.h"

namespace castor::server {

class CallerAuthorizer final : public Authorizer {
 public:
  using Now = std::function<std::chrono::system_clock::time_point()>;

  // `callers`: null where only certificates count. All must outlive this object. `now` is the clock
  // that credentials expire by.
  CallerAuthorizer(const LiveCallers* callers, Refusals& refusals,
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
  Refusals& refusals_;
  const Now now_;
};

}  // namespace castor::server
