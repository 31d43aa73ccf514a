// grpc.channelz.v1.Channelz: what gRPC itself counts of its servers and sockets. gRPC's own plugin
// would not do: it asks no Authorizer, and gives a thread to each call. The server calls it on
// gRPC's threads; stateless.
#pragma once

#include "server/transport/call_table.h"
#include "server/transport/message_service.h"

namespace castor::server {

class ChannelzService final : public MessageService {
 public:
  // Both must outlive the service.
  ChannelzService(CallTable& calls, const Authorizer& authorizer);
};

}  // namespace castor::server
