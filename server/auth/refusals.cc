#include "server/auth/refusals.h"

#include <string>

#include "engine/base/error.h"
#include "server/logging.h"

namespace castor::server {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kTellEvery{10};  // for each reason

// What the caller is told.
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

absl::Status Refusals::Refuse(RefusedCaller reason, std::string_view who, std::string_view what,
                              std::string_view peer) {
  metrics_.CallerRefused(reason);
  int64_t refused = 0;
  {
    const steady_clock::time_point now = steady_clock::now();
    MutexLock lock(mu_);
    Told& told = told_[static_cast<size_t>(reason)];
    ++told.since;
    if (told.last == steady_clock::time_point() || now - told.last >= kTellEvery) {
      refused = std::exchange(told.since, 0);
      told.last = now;
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
