#include "server/transport/call.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <algorithm>
#include <memory>

namespace castor::server {

std::string_view Call::header(std::string_view name) const {
  const auto values = headers(name);
  return values.size() == 1 ? values.front() : std::string_view();
}

std::vector<std::string_view> GrpcCall::headers(std::string_view name) const {
  std::vector<std::string_view> values;
  const auto& metadata = context_.client_metadata();
  const auto [begin, end] = metadata.equal_range(grpc::string_ref(name.data(), name.size()));
  for (auto it = begin; it != end; ++it) values.emplace_back(it->second.data(), it->second.size());
  return values;
}

int64_t GrpcCall::header_bytes() const {
  constexpr int64_t kEntry = 32;
  int64_t bytes = 0;
  for (const auto& [key, value] : context_.client_metadata()) {
    bytes += kEntry + static_cast<int64_t>(key.size() + value.size());
  }
  return bytes;
}

std::optional<CertificateNames> GrpcCall::certificate() const {
  const std::shared_ptr<const grpc::AuthContext> peer = context_.auth_context();
  if (peer == nullptr || !peer->IsPeerAuthenticated()) return std::nullopt;
  const auto names = [&](const char* kind) {
    std::vector<std::string> all;
    for (const grpc::string_ref& name : peer->FindPropertyValues(kind)) {
      all.emplace_back(name.data(), name.size());
    }
    return all;
  };
  return CertificateNames{.uris = names(GRPC_PEER_URI_PROPERTY_NAME),
                          .dns = names(GRPC_PEER_DNS_PROPERTY_NAME),
                          .common_names = names(GRPC_X509_CN_PROPERTY_NAME)};
}

TimePoint GrpcCall::deadline(std::chrono::milliseconds longest) const {
  const gpr_timespec asked = context_.raw_deadline();
  return DeadlineOf(asked, longest, gpr_now(asked.clock_type), std::chrono::steady_clock::now());
}

TimePoint DeadlineOf(gpr_timespec asked, std::chrono::milliseconds longest, gpr_timespec asked_now,
                     TimePoint now) {
  // Saturates: a call without a deadline has the end of the clock's range, and some callers send
  // values close to it.
  const gpr_timespec left = gpr_time_sub(asked, asked_now);
  const auto limit = std::chrono::duration_cast<std::chrono::seconds>(longest).count() + 1;
  if (left.tv_sec > limit) return now + longest;
  if (left.tv_sec < -limit) return now - longest;
  const auto asked_for = std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
  return now + std::clamp<std::chrono::nanoseconds>(asked_for, -longest, longest);
}

}  // namespace castor::server
