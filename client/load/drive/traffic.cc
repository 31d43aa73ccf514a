#include "client/load/drive/traffic.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <climits>

#include "client/credentials.h"

namespace castor::load {

std::shared_ptr<grpc::Channel> Connect(const std::string& target,
                                       const std::optional<client::TlsOptions>& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(INT_MAX);
  arguments.SetMaxSendMessageSize(INT_MAX);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Without it, channels to one target share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  const auto credentials = client::MakeCredentials(target, tls, &arguments);
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

}  // namespace castor::load
