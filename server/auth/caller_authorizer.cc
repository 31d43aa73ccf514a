#include "server/auth/caller_authorizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "server/auth/caller_table.h"
#include "server/auth/token.h"
#include "server/logging.h"

namespace castor::server {
namespace {

constexpr std::string_view kHealth = "/grpc.health.v1.Health/";
constexpr std::string_view kHealthList = "/grpc.health.v1.Health/List";
constexpr std::string_view kScrape = "/metrics";

// Names become metrics' labels and lines of the log.
bool IsPlain(std::string_view name) {
  constexpr size_t kMost = 256;
  return !name.empty() && name.size() <= kMost &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

CallerAuthorizer::CallerAuthorizer(const LiveCallers* callers, RejectionLog& rejections, Now now)
    : callers_(callers), rejections_(rejections), now_(std::move(now)) {}

absl::StatusOr<Caller> CallerAuthorizer::Authorize(const Call& call,
                                                   std::string_view method) const {
  if (method.starts_with(kHealth) && method != kHealthList) return Caller{};
  if (callers_ == nullptr) return AnyCertificate(call, method);
  const auto refuse = [&](RefusedCaller reason, std::string_view who) {
    return rejections_.Refuse(reason, who, method, call.peer());
  };
  const std::shared_ptr<const CallerTable> callers = callers_->current();
  Verdict verdict;
  const auto authorizations = call.headers(kAuthorizationKey);
  if (authorizations.empty()) {
    verdict = ByCertificate(*callers, call);
  } else {
    const auto token = BearerToken(authorizations.front());
    if (!token || authorizations.size() > 1) return refuse(RefusedCaller::kMalformed, "");
    verdict = ByToken(*callers, *token);
  }
  const Credential* const credential = verdict.credential;
  if (credential == nullptr) return refuse(verdict.reason, "");
  if (credential->expires && credential->expired(now_())) {
    return refuse(RefusedCaller::kExpired, credential->name);
  }
  if (!credential->Allows(method)) return refuse(RefusedCaller::kNotAllowed, credential->name);
  return Caller{.name = credential->name, .tenant = credential->name};
}

absl::Status CallerAuthorizer::AuthorizeScrape(std::string_view authorization,
                                               std::string_view peer) const {
  const auto refuse = [&](RefusedCaller reason, std::string_view who) {
    return rejections_.Refuse(reason, who, kScrape, peer);
  };
  if (authorization.empty() || callers_ == nullptr) {
    return refuse(RefusedCaller::kNoCredential, "");
  }
  const std::shared_ptr<const CallerTable> callers = callers_->current();
  const auto bearer = BearerToken(authorization);
  const auto basic = bearer ? std::nullopt : BasicCredentials(authorization);
  if (!bearer && !basic) return refuse(RefusedCaller::kMalformed, "");
  const Verdict verdict = ByToken(*callers, bearer ? *bearer : basic->password);
  if (verdict.credential == nullptr || (basic && basic->name != verdict.credential->name)) {
    return refuse(RefusedCaller::kUnknownToken, "");
  }
  const Credential& credential = *verdict.credential;
  if (credential.expired(now_())) return refuse(RefusedCaller::kExpired, credential.name);
  if (!credential.metrics) return refuse(RefusedCaller::kNotAllowed, credential.name);
  return absl::OkStatus();
}

CallerAuthorizer::Verdict CallerAuthorizer::ByToken(const CallerTable& callers,
                                                    std::string_view token) const {
  return {callers.FindToken(DigestOf(token)), RefusedCaller::kUnknownToken};
}

CallerAuthorizer::Verdict CallerAuthorizer::ByCertificate(const CallerTable& callers,
                                                          const Call& call) const {
  const auto certificate = call.certificate();
  if (!certificate) return {nullptr, RefusedCaller::kNoCredential};
  // A DNS name and, say, an e-mail address of the same text are not the same caller, so other kinds
  // of names are not looked at.
  for (const auto* const names : {&certificate->uris, &certificate->dns}) {
    for (const std::string& name : *names) {
      if (const Credential* found = callers.FindName(name)) return {found, {}};
    }
  }
  return {nullptr, RefusedCaller::kUnknownCertificate};
}

// The tenant is the first of the certificate's names.
absl::StatusOr<Caller> CallerAuthorizer::AnyCertificate(const Call& call,
                                                        std::string_view method) const {
  const auto refuse = [&](RefusedCaller reason) {
    return rejections_.Refuse(reason, "", method, call.peer());
  };
  const auto certificate = call.certificate();
  if (!certificate) return refuse(RefusedCaller::kNoCredential);
  for (const auto* const names :
       {&certificate->uris, &certificate->dns, &certificate->common_names}) {
    if (names->empty() || !IsPlain(names->front())) continue;
    return Caller{.name = names->front(), .tenant = names->front()};
  }
  return refuse(RefusedCaller::kUnknownCertificate);
}

absl::StatusOr<Caller> OpenToAll::Authorize(const Call& call, std::string_view) const {
  auto tenant = TenantOf(call);
  if (!tenant.ok()) return tenant.status();
  return Caller{.name = {}, .tenant = *std::move(tenant)};
}

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kLogInterval{10};  // for each reason

// The error text for the caller.
std::string_view TextOf(RefusedCaller reason) {
  switch (reason) {
    case RefusedCaller::kNoCredential:
      return "the call has no credential: metadata 'authorization: Bearer TOKEN' is missing";
    case RefusedCaller::kMalformed:
      return "metadata 'authorization' must be given once, as 'Bearer TOKEN'";
    case RefusedCaller::kUnknownToken:
      return "the server does not know this token";
    case RefusedCaller::kUnknownCertificate:
      return "the server does not know the names in the client's certificate";
    case RefusedCaller::kExpired:
      return "the credential has expired";
    case RefusedCaller::kNotAllowed:
      return "the caller may not call this method";
  }
  return "";
}

}  // namespace

absl::Status RejectionLog::Refuse(RefusedCaller reason, std::string_view who, std::string_view what,
                                  std::string_view peer) {
  metrics_.CallerRefused(reason);
  int64_t refused = 0;
  {
    const steady_clock::time_point now = steady_clock::now();
    MutexLock lock(mu_);
    LastLogged& logged = last_logged_[static_cast<size_t>(reason)];
    ++logged.since;
    if (logged.last == steady_clock::time_point() || now - logged.last >= kLogInterval) {
      refused = std::exchange(logged.since, 0);
      logged.last = now;
    }
  }
  if (refused > 0) {
    LogWarning("caller refused", {{"reason", NameOf(reason)},
                                  {"caller", who},
                                  {"method", what},
                                  {"peer", peer},
                                  {"refused", refused}});
  }
  const bool known = reason == RefusedCaller::kNotAllowed;
  return MakeError(known ? Reason::kPermissionDenied : Reason::kUnauthenticated, TextOf(reason));
}

}  // namespace castor::server
