#include "client/cli/security_flags.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <initializer_list>

#include "client/cli/command.h"
#include "client/cli/values.h"

namespace castor::cli {

bool SecurityFlags::secure() const {
  return tls || !files.ca_file.empty() || !files.certificate_file.empty() ||
         !files.key_file.empty() || !files.server_name.empty();
}

void SecurityFlags::ApplyTo(client::ClientOptions* options) const {
  if (files.certificate_file.empty() != files.key_file.empty()) {
    throw UsageError(files.key_file.empty() ? "--cert needs --cert-key"
                                            : "--cert-key needs --cert");
  }
  if (secure()) options->tls = files;
  options->token_file = token_file;
  const char* const token = std::getenv("CASTOR_TOKEN");
  if (token_file.empty() && token != nullptr) options->token = token;
  options->allow_plaintext_token = allow_plaintext_token;
}

void AddSecurityFlags(CLI::App* command, SecurityFlags* flags, const std::string& group) {
  const auto add = [&](const char* name, std::string* value, const char* help, const char* variable,
                       const char* type) {
    AddOption(command, group, name, value, type, help, FileName())->envname(variable);
  };
  command->add_flag("--tls", flags->tls, "Use TLS; implied by the four flags below")
      ->envname("CASTOR_TLS")
      ->group(group);
  add("--ca", &flags->files.ca_file, "Authorities to trust, in PEM (default: the system's)",
      "CASTOR_CA", "FILE");
  add("--cert", &flags->files.certificate_file,
      "This client's certificate, for servers that ask for one", "CASTOR_CERT", "FILE");
  // --key is taken: `castor attend` uses it for K.
  add("--cert-key", &flags->files.key_file, "Its private key", "CASTOR_KEY", "FILE");
  add("--server-name", &flags->files.server_name,
      "Name that the server's certificate must have (default: the server's host)",
      "CASTOR_SERVER_NAME", "NAME");
  add("--token-file", &flags->token_file,
      "File with the token for each call. CASTOR_TOKEN may hold the token itself; no flag does, "
      "because others can read command lines",
      "CASTOR_TOKEN_FILE", "FILE");
  command
      ->add_flag("--allow-plaintext-token", flags->allow_plaintext_token,
                 "Also send the token to other machines without TLS")
      ->group(group);
}

std::string HandshakeHint(std::string_view message, const client::ClientOptions& options) {
  const auto says = [&](std::initializer_list<std::string_view> texts) {
    return std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
      return message.find(text) != std::string_view::npos;
    });
  };
  // gRPC reports only the failure of a name's last address, which hides the others'.
  if (const size_t colon = options.target.rfind(':');
      colon != std::string::npos && says({"refused"}) &&
      options.target.substr(0, colon).ends_with("localhost")) {
    for (const char* host : {"127.0.0.1", "[::1]"}) {
      client::ClientOptions one = options;
      one.target = host + options.target.substr(colon);
      one.deadline = std::chrono::seconds(2);
      one.retry.max_attempts = 1;
      if (one.tls && one.tls->server_name.empty()) one.tls->server_name = "localhost";
      const auto health = client::Client(one).Health();
      const std::string hint = health.ok() ? "" : HandshakeHint(health.error().message, one);
      if (!hint.empty()) return hint;
    }
  }
  if (!options.tls) {
    // The errors of a plaintext client at a TLS server.
    return says({"Socket closed", "Empty reply", "reset by peer", "HTTP/0.9"})
               ? "does the server use TLS? Try --tls"
               : "";
  }
  if (says({"certificate verify failed", "unable to get local issuer", "self-signed", "expired"})) {
    return "the server's certificate has expired, or none of " +
           (options.tls->ca_file.empty() ? "the system's authorities" : options.tls->ca_file) +
           " signed it: see --ca";
  }
  if (says({"Hostname Verification", "is not in peer certificate", "subject name"})) {
    return "the server's certificate is not for " +
           (options.tls->server_name.empty()
                ? "the host of --server: set --server-name to the name in the certificate"
                : options.tls->server_name + ": see --server-name");
  }
  // A plaintext server may also just end the connection before its answer.
  if (says({"wrong version number", "SSL_ERROR_SYSCALL", "unexpected eof"})) {
    return "the server does not use TLS: leave out --tls";
  }
  if (says({"Socket closed", "alert", "certificate required"})) {
    return options.tls->certificate_file.empty()
               ? "the server may require a client certificate: see --cert and --cert-key"
               : "the server may not accept the certificate of --cert";
  }
  return "";
}

std::string AccessHint(grpc::StatusCode code, const client::ClientOptions& options) {
  const bool token = !options.token.empty() || !options.token_file.empty();
  const bool certificate = options.tls && !options.tls->certificate_file.empty();
  if (code == grpc::StatusCode::PERMISSION_DENIED) {
    return token || certificate ? "this caller may not do that: try another token or certificate"
                                : "callers without a token may not do that: see --token-file";
  }
  return token ? "the server does not accept this token"
               : "the server requires a credential: see --token-file and CASTOR_TOKEN";
}

}  // namespace castor::cli
