#include "server/tls/client_hello.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <memory>

namespace castor::server {
namespace {

constexpr size_t kRecordHeader = 5;
constexpr auto kHandshakeRecord = std::byte{22};
constexpr auto kMajorVersion = std::byte{3};
// A hello is one record. A few fragments are allowed; each is a reason to parse it again.
constexpr int kMaxRecords = 4;

constexpr std::array<std::byte, 7> kTooOld = {
    std::byte{21}, std::byte{3},
    std::byte{1},                 // alert, in the version that everybody reads
    std::byte{0},  std::byte{2},  // of two bytes:
    std::byte{2},  std::byte{SSL_AD_PROTOCOL_VERSION}};  // fatal, protocol_version

// What the library's callback has found; it lies behind the context's pointer.
struct Found {
  bool complete = false;
  bool offers13 = false;
};

// The versions that the hello offers beyond TLS 1.2 stand in an extension: a length of one byte,
// then two bytes each.
bool Offers13(SSL* ssl) {
  const unsigned char* bytes = nullptr;
  size_t size = 0;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_supported_versions, &bytes, &size) != 1) {
    return false;
  }
  for (size_t i = 1; i + 1 < size; i += 2) {
    if ((bytes[i] << 8 | bytes[i + 1]) == TLS1_3_VERSION) return true;
  }
  return false;
}

int OnHello(SSL* ssl, int*, void* found) {
  auto& it = *static_cast<Found*>(found);
  it.complete = true;
  it.offers13 = Offers13(ssl) || SSL_client_hello_get0_legacy_version(ssl) > TLS1_2_VERSION;
  return SSL_CLIENT_HELLO_RETRY;  // that is all: the handshake is gRPC's
}

// Has the library read a hello.
Hello Parse(std::span<const std::byte> bytes, TlsVersion least) {
  // A context of its own, because the callback's argument belongs to it. Made once a thread.
  thread_local const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(
      SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  Found found;
  SSL_CTX_set_client_hello_cb(context.get(), &OnHello, &found);
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), SSL_free);
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  if (ssl == nullptr || in == nullptr || out == nullptr) return Hello::kNotTls;
  BIO_write(in, bytes.data(), static_cast<int>(bytes.size()));
  SSL_set_bio(ssl.get(), in, out);  // which now owns them
  ERR_clear_error();
  const int result = SSL_accept(ssl.get());
  const int error = SSL_get_error(ssl.get(), result);
  ERR_clear_error();
  if (!found.complete) {
    return error == SSL_ERROR_WANT_READ ? Hello::kIncomplete : Hello::kNotTls;
  }
  return least == TlsVersion::k13 && !found.offers13 ? Hello::kTooOld : Hello::kAcceptable;
}

}  // namespace

Hello InspectHello(std::span<const std::byte> bytes, TlsVersion least) {
  // Bytes may come one by one, and to parse costs: only at the end of a record.
  size_t end = 0;
  for (int record = 0; record < kMaxRecords; ++record) {
    const auto rest = bytes.subspan(end);
    if (!rest.empty() && rest[0] != kHandshakeRecord) return Hello::kNotTls;
    if (rest.size() > 1 && rest[1] != kMajorVersion) return Hello::kNotTls;
    if (rest.size() < kRecordHeader) return Hello::kIncomplete;
    end +=
        kRecordHeader + (std::to_integer<size_t>(rest[3]) << 8 | std::to_integer<size_t>(rest[4]));
    if (end > kMaxHelloBytes) return Hello::kNotTls;
    if (end > bytes.size()) return Hello::kIncomplete;
    const Hello hello = Parse(bytes.first(end), least);
    if (hello != Hello::kIncomplete) return hello;
  }
  return Hello::kNotTls;
}

std::span<const std::byte> TooOldAlert() { return kTooOld; }

}  // namespace castor::server
