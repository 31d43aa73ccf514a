#include "server/options/options_access.h"

#include <string>

namespace castor::server {
namespace {

constexpr char kSecurity[] = "Security";

[[noreturn]] void Fail(const std::string& flag, const std::string& problem) {
  throw CLI::ValidationError(flag, problem);
}

}  // namespace

bool IsLocal(const std::string& address) {
  return address.starts_with("unix:") || address.starts_with("127.") ||
         address.starts_with("[::1]:") || address.starts_with("localhost:");
}

void DeclareAccess(Declarer& declare, ServerOptions& options) {
  AccessOptions& access = options.access;
  declare.Text(kSecurity, "--tls-certificate", "FILE", &access.tls.certificate,
               "Use TLS with this certificate, followed by any intermediate certificates, in PEM. "
               "Changes to this and the other files here take effect within two seconds");
  declare.Text(kSecurity, "--tls-key", "FILE", &access.tls.key,
               "The certificate's private key, in PEM");
  declare.Text(kSecurity, "--tls-client-ca", "FILE", &access.tls.client_ca,
               "Accept only clients with a certificate from these authorities, in PEM");
  declare.Choice<TlsVersion>(kSecurity, "--tls-min-version", &access.tls_min_version,
                             {{"1.2", TlsVersion::k12}, {"1.3", TlsVersion::k13}}, "1.2",
                             "Oldest TLS version to accept, also from a trace collector");
  declare.Text(kSecurity, "--auth-tokens", "FILE", &access.callers,
               "Accept only the callers in this file, by token or by certificate name; "
               "'castor-server token NAME' makes an entry");
  declare.Flag(kSecurity, "--insecure-tokens", &access.callers_in_the_clear,
               "Accept tokens over plaintext from other machines. Anyone on the network path can "
               "read them: use it only behind a proxy or mesh that encrypts");
  declare.Flag(kSecurity, "--metrics-tls", &access.metrics_tls,
               "Serve /metrics over TLS, with the same certificate");
  declare.Flag(kSecurity, "--metrics-auth", &access.metrics_callers,
               "Serve /metrics only to callers of --auth-tokens whose entry allows \"metrics\": a "
               "bearer token, or the name and the token as user and password");
}

void CheckAccess(const ServerOptions& options) {
  const AccessOptions& access = options.access;
  if (access.tls.certificate.empty() != access.tls.key.empty()) {
    const bool key = access.tls.certificate.empty();
    Fail(key ? "--tls-key" : "--tls-certificate",
         std::string("needs ") + (key ? "--tls-certificate" : "--tls-key") + " as well");
  }
  if (!access.tls.client_ca.empty() && !access.tls.on()) {
    Fail("--tls-client-ca", "needs --tls-certificate and --tls-key as well");
  }
  if (access.metrics_tls && !access.tls.on()) {
    Fail("--metrics-tls", "needs --tls-certificate and --tls-key as well");
  }
  if (access.metrics_callers && access.callers.empty()) {
    Fail("--metrics-auth", "needs --auth-tokens as well");
  }
  if (!access.callers.empty() && !options.engine.tenants.empty()) {
    Fail("--tenant-weight",
         "cannot be combined with --auth-tokens: set weights in its sections [tenant.NAME]");
  }
  if (access.callers.empty() || access.callers_in_the_clear) return;
  const auto fail_plaintext = [&](const char* flag, const std::string& listen, const char* remedy) {
    Fail(flag, listen + " is plaintext, so anyone on the network path can read tokens: set " +
                   remedy + ", or accept that with --insecure-tokens");
  };
  if (!access.tls.on() && !IsLocal(options.listen)) {
    fail_plaintext("--auth-tokens", "--listen " + options.listen,
                   "--tls-certificate and --tls-key");
  }
  if (access.metrics_callers && !access.metrics_tls && !options.metrics_listen.empty() &&
      !IsLocal(options.metrics_listen)) {
    fail_plaintext("--metrics-auth", "--metrics-listen " + options.metrics_listen, "--metrics-tls");
  }
}

}  // namespace castor::server
