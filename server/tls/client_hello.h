// The first message of a TLS handshake, looked at before gRPC sees it. gRPC 1.51 cannot be told
// which versions of TLS to accept, and says nothing useful of callers that speak no TLS at all.
#pragma once

#include <cstddef>
#include <span>

namespace castor::server {

enum class TlsVersion { k12, k13 };

enum class Hello {
  kIncomplete,  // more bytes are needed
  kAcceptable,
  kNotTls,
  kTooOld,  // offers no version that is acceptable
};

// The most bytes that a hello may have; one without an end by then is no TLS.
inline constexpr size_t kMaxHelloBytes = 16 << 10;

// Looks at the first bytes of a connection. TLS takes the newest version that both sides have, so
// whoever offers `least` gets no older one. A function of its arguments.
Hello InspectHello(std::span<const std::byte> bytes, TlsVersion least);

// The alert that tells a client that its versions are too old.
std::span<const std::byte> TooOldAlert();

}  // namespace castor::server
