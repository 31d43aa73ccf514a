// A certificate authority for tests, made afresh by each: no key lies in the tree.
#pragma once

#include <openssl/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace castor::testing {

// A certificate and its private key, in PEM.
struct KeyPair {
  std::string certificate;
  std::string key;
};

// What a certificate says, besides its key.
struct Subject {
  std::string common_name = {};
  std::vector<std::string> dns = {};  // subject alternative names
  std::vector<std::string> uris = {};
  std::vector<std::string> ips = {};
  std::chrono::seconds begins = -std::chrono::hours(1);  // valid from then on, and
  std::chrono::seconds ends = std::chrono::hours(24);    // until then; from now
};

// Not thread-safe. Throws std::runtime_error where OpenSSL fails.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name = "Castor's test authority");
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  const std::string& certificate() const { return pem_; }

  // A new key (P-256), and a certificate for it that serves servers and clients alike.
  KeyPair Issue(const Subject& subject) const;

  // For a server at localhost, 127.0.0.1 and ::1.
  KeyPair IssueForLocalhost() const;

 private:
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_;
  std::unique_ptr<X509, void (*)(X509*)> certificate_;
  std::string pem_;
};

}  // namespace castor::testing
