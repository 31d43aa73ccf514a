// The options about access: certificates, callers and who may scrape.
#pragma once

#include <chrono>
#include <string>

namespace castor::server {

enum class TlsVersion { k12, k13 };

// Where the listener's certificates lie, in PEM. All empty: no TLS.
struct TlsFiles {
  std::string certificate{};  // the server's, then those between it and its authority
  std::string key{};          // the server's, without a pass phrase
  std::string client_ca{};  // authorities that clients' certificates come from; empty: none needed

  bool on() const { return !certificate.empty(); }
};

struct AccessOptions {
  TlsFiles tls{};
  TlsVersion tls_min_version = TlsVersion::k12;
  std::string callers{};         // the file of auth/caller_file.h; empty: none
  bool insecure_tokens = false;  // tokens may come over plaintext from other machines
  bool metrics_tls = false;      // /metrics has the listener's certificates
  bool metrics_callers = false;  // /metrics is for callers who may read it
  std::chrono::milliseconds check_interval{1000};  // at the files

  // Whether callers must say who they are.
  bool identifies_callers() const { return !callers.empty() || !tls.client_ca.empty(); }
};

}  // namespace castor::server
