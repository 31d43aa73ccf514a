// A connection's first bytes, as the acceptor looks at them.

#include "server/tls/client_hello.h"

#include <cstdint>
#include <cstdlib>
#include <span>

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor::server;
  const auto bytes = std::as_bytes(std::span(data, size));
  const Hello any = InspectHello(bytes, TlsVersion::k12);
  const Hello newest = InspectHello(bytes, TlsVersion::k13);
  Require(any != Hello::kTooOld);
  if (any == Hello::kAcceptable) {
    Require(newest == Hello::kAcceptable || newest == Hello::kTooOld);
  } else {
    Require(newest == any);
  }
  // What comes after a whole hello changes nothing; before its end there is no verdict on it.
  if (any == Hello::kIncomplete) Require(size < kMaxHelloBytes);
  if (any != Hello::kIncomplete && size > 5) {
    const Hello before = InspectHello(bytes.first(4), TlsVersion::k12);
    Require(before == Hello::kIncomplete || before == Hello::kNotTls);
  }
  return 0;
}
