// TLS or plaintext, as gRPC's channels take it.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>
#include <string>

#include "client/tls.h"

namespace castor::client {

// For a channel to `target`, whose arguments it completes. With TLS, gRPC looks at the files each
// second, and new connections use them as they were then; files that it cannot use fail the
// connection (see CheckTlsFiles). Keep a channel for many calls: these credentials have a thread.
std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(const std::string& target,
                                                          const std::optional<TlsOptions>& tls,
                                                          grpc::ChannelArguments* arguments);

}  // namespace castor::client
