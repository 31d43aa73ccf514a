#include "client/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "client/target.h"

namespace castor::client {
namespace {

namespace tls_api = grpc::experimental;

constexpr unsigned kLookSeconds = 1;  // the least that gRPC takes

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(const std::string& target,
                                                          const std::optional<TlsOptions>& tls,
                                                          grpc::ChannelArguments* arguments) {
  // This machine is not where a proxy would look for it.
  if (IsOnThisMachine(target)) arguments->SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!tls) return grpc::InsecureChannelCredentials();
  if (!tls->server_name.empty()) {
    arguments->SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, tls->server_name);
  }
  const std::string authorities = AuthoritiesOf(*tls);
  const bool identity = !tls->certificate_file.empty() && !tls->key_file.empty();
  if (authorities.empty() && !identity) return grpc::SslCredentials({});  // nothing to look at
  tls_api::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls_api::FileWatcherCertificateProvider>(
      identity ? tls->key_file : "", identity ? tls->certificate_file : "", authorities,
      kLookSeconds));
  if (!authorities.empty()) options.watch_root_certs();
  if (identity) options.watch_identity_key_cert_pairs();
  return tls_api::TlsCredentials(options);
}

}  // namespace castor::client
