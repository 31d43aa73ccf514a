#include "client/credentials.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "client/file.h"

namespace castor::client {
namespace {

constexpr size_t kLargestPem = 16 << 20;

using Certificate = std::unique_ptr<X509, void (*)(X509*)>;
using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Bio = std::unique_ptr<BIO, int (*)(BIO*)>;

absl::Status ReadAll(const std::string& path, size_t most, std::string* text) {
  absl::StatusOr<std::string> read = ReadFile(path, most);
  if (!read.ok()) return absl::FailedPreconditionError(read.status().message());
  *text = *std::move(read);
  return absl::OkStatus();
}

Bio Reader(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

// Refuses keys with a password, which a program cannot be asked for.
int NoPassword(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

// Reads the file's first certificate.
absl::Status ReadCertificate(const std::string& path, Certificate* certificate) {
  std::string text;
  if (absl::Status status = ReadAll(path, kLargestPem, &text); !status.ok()) return status;
  certificate->reset(PEM_read_bio_X509(Reader(text).get(), nullptr, nullptr, nullptr));
  if (*certificate != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("'" + path + "' contains no PEM certificate");
}

absl::Status ReadKey(const std::string& path, Key* key) {
  std::string text;
  if (absl::Status status = ReadAll(path, kLargestPem, &text); !status.ok()) return status;
  bool encrypted = false;
  key->reset(PEM_read_bio_PrivateKey(Reader(text).get(), nullptr, NoPassword, &encrypted));
  OPENSSL_cleanse(text.data(), text.size());
  if (*key != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("'" + path +
                                       (encrypted ? "' contains an encrypted key: decrypt it first"
                                                  : "' contains no PEM private key"));
}

constexpr size_t kLongestToken = 16 << 10;

// `from` names the token's source in errors.
absl::StatusOr<std::string> HeaderOf(std::string token, const std::string& from) {
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty()) return absl::FailedPreconditionError(from + " is empty");
  const bool visible =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!visible || token.size() > kLongestToken) {
    return absl::FailedPreconditionError(
        from +
        " contains no token: it must be visible ASCII characters on one line, at most 16 KiB");
  }
  return "Bearer " + token;
}

absl::StatusOr<std::string> ReadHeader(const std::string& path) {
  std::string token;
  // The file may end its line.
  if (absl::Status s = ReadAll(path, kLongestToken + 2, &token); !s.ok()) return s;
  return HeaderOf(std::move(token), "the token file '" + path + "'");
}

}  // namespace

std::string AuthoritiesOf(const TlsOptions& options) {
  if (!options.ca_file.empty()) return options.ca_file;
  const char* const file = std::getenv("SSL_CERT_FILE");
  return file == nullptr ? "" : file;
}

absl::Status CheckTlsFiles(const TlsOptions& options) {
  // An error left in the thread's queue would be taken for the failure of the next OpenSSL call.
  const absl::Cleanup forget = [] { ERR_clear_error(); };
  Certificate certificate(nullptr, X509_free);
  if (const std::string authorities = AuthoritiesOf(options); !authorities.empty()) {
    if (absl::Status status = ReadCertificate(authorities, &certificate); !status.ok()) {
      return status;
    }
  }
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return absl::FailedPreconditionError(
        options.key_file.empty()
            ? "the certificate '" + options.certificate_file + "' needs its key file"
            : "the key '" + options.key_file + "' needs its certificate file");
  }
  if (options.certificate_file.empty()) return absl::OkStatus();
  if (absl::Status status = ReadCertificate(options.certificate_file, &certificate); !status.ok()) {
    return status;
  }
  Key key(nullptr, EVP_PKEY_free);
  if (absl::Status status = ReadKey(options.key_file, &key); !status.ok()) return status;
  if (X509_check_private_key(certificate.get(), key.get()) == 1) return absl::OkStatus();
  return absl::FailedPreconditionError("the key in '" + options.key_file +
                                       "' does not belong to the certificate in '" +
                                       options.certificate_file + "'");
}

TokenSource::TokenSource(std::string token, std::string file)
    : token_(std::move(token)), file_(std::move(file)) {}

absl::StatusOr<std::string> TokenSource::Header(Time now) {
  if (empty()) return std::string();
  if (file_.empty()) return HeaderOf(token_, "the token");
  const std::lock_guard<std::mutex> lock(mu_);
  if (!header_.empty() && now - read_ < kFresh) return header_;
  absl::StatusOr<std::string> header = ReadHeader(file_);
  if (header.ok()) header_ = *std::move(header);
  if (header_.empty()) return header.status();
  read_ = now;
  return header_;
}

namespace {

// HOST, HOST:PORT, [HOST]:PORT or an IPv6 address.
std::string_view WithoutPort(std::string_view address) {
  if (address.starts_with('[')) {
    const size_t end = address.find(']');
    return end == std::string_view::npos ? address : address.substr(1, end - 1);
  }
  const size_t colon = address.find(':');
  return colon == address.rfind(':') ? address.substr(0, colon) : address;
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const in_addr four = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return (ntohl(four.s_addr) >> 24) == 127 || four.s_addr == INADDR_ANY;
  }
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_UNSPECIFIED(&six);
}

bool AreEqual(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                            &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr);
}

// Whether one of this machine's interfaces has the address.
bool IsOwn(const sockaddr* address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr != nullptr && AreEqual(each->ifa_addr, address)) return true;
  }
  return false;
}

bool IsOwnHost(std::string_view address) {
  const std::string host(WithoutPort(address));
  if (host == "localhost") return true;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  bool is_four = inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1;
  if (!is_four && inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) != 1) return false;
  if (!is_four && IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
    std::memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, sizeof(four.sin_addr));
    is_four = true;
  }
  const auto* const parsed =
      is_four ? reinterpret_cast<const sockaddr*>(&four) : reinterpret_cast<const sockaddr*>(&six);
  return IsLoopback(parsed) || IsOwn(parsed);
}

}  // namespace

bool IsOnThisMachine(std::string_view target) {
  if (target.starts_with("unix:") || target.starts_with("unix-abstract:")) return true;
  for (const std::string_view scheme : {"dns:", "ipv4:", "ipv6:"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    if (target.starts_with("//")) {  // dns://SERVER/NAME: the server decides where the name leads
      const size_t slash = target.find('/', 2);
      if (slash != 2) return false;
      target.remove_prefix(3);
    }
    break;
  }
  // ipv4: and ipv6: may name several addresses.
  for (;;) {
    const size_t comma = target.find(',');
    if (!IsOwnHost(target.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    target.remove_prefix(comma + 1);
  }
}

}  // namespace castor::client
