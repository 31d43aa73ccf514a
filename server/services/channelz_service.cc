#include "server/services/channelz_service.h"

#include <google/protobuf/util/json_util.h>
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

#include <memory>
#include <utility>

#include "engine/base/error.h"
#include "grpc/channelz/v1/channelz.pb.h"
#include "server/errors.h"
#include "server/services/message.h"
#include "server/transport/message_call.h"

namespace castor::server {
namespace {

namespace channelz = grpc::channelz::v1;

struct FreeByGrpc {
  void operator()(char* text) const { gpr_free(text); }
};
// What gRPC says about itself, in the JSON form of the response; null if it has no such thing.
// Pages have at most 100 entries.
using Said = std::unique_ptr<char, FreeByGrpc>;

// One call of a method: `ask` puts the request to gRPC.
template <typename Request, typename Response>
class ChannelzCall final : public MessageCall {
 public:
  using Ask = Said (*)(const Request&);

  ChannelzCall(CallTable& calls, Arrival arrival, Ask ask)
      : MessageCall(calls, CallTable::Kind::kWork, std::move(arrival)), ask_(ask) {}

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    Request request;
    if (absl::Status parsed = ParseMessage(*message, &request); !parsed.ok()) {
      return OnRefusal(parsed);
    }
    const Said said = ask_(request);
    if (said == nullptr) {
      return SendError(grpc::Status(grpc::StatusCode::NOT_FOUND, "gRPC has nothing of that id"));
    }
    Response response;
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = true;
    const auto parsed = google::protobuf::util::JsonStringToMessage(said.get(), &response, options);
    if (!parsed.ok()) return OnRefusal(MakeError(Reason::kInternal, parsed.ToString()));
    Send(SerializeMessage(response), TimePoint::max());
  }
  void OnRefusal(const absl::Status& error) override {
    SendError(RefuseCall(error, {}, context()));
  }
  void OnLost() override { SendError(grpc::Status::CANCELLED); }

  const Ask ask_;
};

template <typename Request, typename Response>
auto ChannelzMethod(CallTable& calls, Said (*ask)(const Request&)) {
  return [&calls, ask](Arrival arrival) {
    auto* call = new ChannelzCall<Request, Response>(calls, std::move(arrival), ask);
    call->Begin();
    return call;
  };
}

Said GetTopChannels(const channelz::GetTopChannelsRequest& request) {
  return Said(grpc_channelz_get_top_channels(request.start_channel_id()));
}
Said GetServers(const channelz::GetServersRequest& request) {
  return Said(grpc_channelz_get_servers(request.start_server_id()));
}
Said GetServer(const channelz::GetServerRequest& request) {
  return Said(grpc_channelz_get_server(request.server_id()));
}
Said GetServerSockets(const channelz::GetServerSocketsRequest& request) {
  return Said(grpc_channelz_get_server_sockets(request.server_id(), request.start_socket_id(),
                                               request.max_results()));
}
Said GetChannel(const channelz::GetChannelRequest& request) {
  return Said(grpc_channelz_get_channel(request.channel_id()));
}
Said GetSubchannel(const channelz::GetSubchannelRequest& request) {
  return Said(grpc_channelz_get_subchannel(request.subchannel_id()));
}
Said GetSocket(const channelz::GetSocketRequest& request) {
  return Said(grpc_channelz_get_socket(request.socket_id()));
}

}  // namespace

ChannelzService::ChannelzService(CallTable& calls, const Authorizer& authorizer)
    : MessageService(authorizer) {
  AddMethod("/grpc.channelz.v1.Channelz/GetTopChannels",
            ChannelzMethod<channelz::GetTopChannelsRequest, channelz::GetTopChannelsResponse>(
                calls, GetTopChannels));
  AddMethod(
      "/grpc.channelz.v1.Channelz/GetServers",
      ChannelzMethod<channelz::GetServersRequest, channelz::GetServersResponse>(calls, GetServers));
  AddMethod(
      "/grpc.channelz.v1.Channelz/GetServer",
      ChannelzMethod<channelz::GetServerRequest, channelz::GetServerResponse>(calls, GetServer));
  AddMethod("/grpc.channelz.v1.Channelz/GetServerSockets",
            ChannelzMethod<channelz::GetServerSocketsRequest, channelz::GetServerSocketsResponse>(
                calls, GetServerSockets));
  AddMethod(
      "/grpc.channelz.v1.Channelz/GetChannel",
      ChannelzMethod<channelz::GetChannelRequest, channelz::GetChannelResponse>(calls, GetChannel));
  AddMethod("/grpc.channelz.v1.Channelz/GetSubchannel",
            ChannelzMethod<channelz::GetSubchannelRequest, channelz::GetSubchannelResponse>(
                calls, GetSubchannel));
  AddMethod(
      "/grpc.channelz.v1.Channelz/GetSocket",
      ChannelzMethod<channelz::GetSocketRequest, channelz::GetSocketResponse>(calls, GetSocket));
}

}  // namespace castor::server
