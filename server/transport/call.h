// A call as its protocol shows it: everything about it but its message. Everything that accounts
// for calls (authorization, tenants, bounds, records, traces) works on this alone, so it holds for
// gRPC and for HTTP.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/clock.h"

namespace castor::server {

// The names in a certificate that the connection's handshake has verified, by their kind.
struct CertificateNames {
  std::vector<std::string> uris;          // subject alternative names
  std::vector<std::string> dns;           // the same
  std::vector<std::string> common_names;  // of the subject
};

// Its protocol's shell owns it, and it lives as long as the call. Any thread may read it.
class Call {
 public:
  virtual ~Call() = default;

  // The peer as PeerName::name has it.
  virtual std::string peer() const = 0;
  // The values of a header (gRPC: metadata), by its name in lower case.
  virtual std::vector<std::string_view> headers(std::string_view name) const = 0;
  // The size of all headers as HTTP/2 counts them (RFC 9113, 6.5.2).
  virtual int64_t header_bytes() const = 0;
  // Nothing if the peer has shown no certificate.
  virtual std::optional<CertificateNames> certificate() const = 0;
  // The caller's deadline, but at most `longest` (not negative) from now.
  virtual TimePoint deadline(std::chrono::milliseconds longest) const = 0;

  // Before the call is finished.
  virtual void AddTrailer(const std::string& name, const std::string& value) = 0;
  // Ends the call without an answer, as if the caller had gone.
  virtual void Cancel() = 0;

  // A header that is there once; empty otherwise.
  std::string_view header(std::string_view name) const;
};

class GrpcCall final : public Call {
 public:
  // `context` must outlive it.
  explicit GrpcCall(grpc::CallbackServerContext* context) : context_(*context) {}

  std::string peer() const override { return context_.peer(); }
  std::vector<std::string_view> headers(std::string_view name) const override;
  int64_t header_bytes() const override;
  std::optional<CertificateNames> certificate() const override;
  TimePoint deadline(std::chrono::milliseconds longest) const override;
  void AddTrailer(const std::string& name, const std::string& value) override {
    context_.AddTrailingMetadata(name, value);
  }
  void Cancel() override { context_.TryCancel(); }

 private:
  grpc::CallbackServerContext& context_;
};

// GrpcCall::deadline, from the deadline `asked` on a clock of gRPC's, which reads `asked_now` at
// the time `now`. A deadline in the past is at most `longest` ago.
TimePoint DeadlineOf(gpr_timespec asked, std::chrono::milliseconds longest, gpr_timespec asked_now,
                     TimePoint now);

}  // namespace castor::server
