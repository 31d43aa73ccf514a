// --channelz: gRPC's own counts, as a service of ours.

#include <limits>
#include <string>

#include "grpc/channelz/v1/channelz.grpc.pb.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

namespace channelz = grpc::channelz::v1;
using channelz::Channelz;

class ChannelzTest : public ServerTest {
 protected:
  void Start() {
    server::ServerOptions options = TestOptions();
    options.channelz = true;
    StartServer(options);
    stub_ = Channelz::NewStub(channel_);
  }

  template <typename Request, typename Response>
  Response Ask(grpc::Status (Channelz::Stub::*method)(grpc::ClientContext*, const Request&,
                                                      Response*),
               const Request& request) {
    Response response;
    grpc::ClientContext context;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  template <typename Request, typename Response>
  grpc::StatusCode CodeOf(grpc::Status (Channelz::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                          const Request& request) {
    Response response;
    grpc::ClientContext context;
    return (stub_.get()->*method)(&context, request, &response).error_code();
  }

  // The server is the only one of the process that has a connection.
  std::pair<int64_t, int64_t> ServerAndSocket() {
    const channelz::GetServersResponse servers = Ask(&Channelz::Stub::GetServers, {});
    for (const channelz::Server& server : servers.server()) {
      channelz::GetServerSocketsRequest request;
      request.set_server_id(server.ref().server_id());
      const auto sockets = Ask(&Channelz::Stub::GetServerSockets, request);
      if (sockets.socket_ref_size() > 0) {
        return {server.ref().server_id(), sockets.socket_ref(0).socket_id()};
      }
    }
    return {0, 0};
  }

  std::unique_ptr<Channelz::Stub> stub_;
};

TEST_F(ChannelzTest, IsOffByDefault) {
  StartServer();
  EXPECT_EQ(CallRaw("/grpc.channelz.v1.Channelz/GetServers", "").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ChannelzTest, TellsOfTheServerAndItsSockets) {
  Start();
  AttendCall call;
  ASSERT_TRUE(call.Run(*attention_, AttendOf(2)).ok());
  const auto [server_id, socket_id] = ServerAndSocket();
  ASSERT_GT(server_id, 0);
  channelz::GetServerRequest server;
  server.set_server_id(server_id);
  const auto of_server = Ask(&Channelz::Stub::GetServer, server).server();
  EXPECT_EQ(of_server.ref().server_id(), server_id);
  EXPECT_GE(of_server.data().calls_started(), 2);
  channelz::GetSocketRequest socket;
  socket.set_socket_id(socket_id);
  const auto of_socket = Ask(&Channelz::Stub::GetSocket, socket).socket();
  EXPECT_EQ(of_socket.ref().socket_id(), socket_id);
  EXPECT_GE(of_socket.data().streams_started(), 2);
  EXPECT_EQ(of_socket.remote().tcpip_address().ip_address(), std::string("\x7f\0\0\1", 4));
}

// The test's own channel is one of this process.
TEST_F(ChannelzTest, TellsOfChannels) {
  Start();
  const auto top = Ask(&Channelz::Stub::GetTopChannels, {});
  EXPECT_TRUE(top.end());
  int subchannels = 0;
  for (const channelz::Channel& channel : top.channel()) {
    channelz::GetChannelRequest request;
    request.set_channel_id(channel.ref().channel_id());
    const auto one = Ask(&Channelz::Stub::GetChannel, request).channel();
    EXPECT_EQ(one.ref().channel_id(), channel.ref().channel_id());
    for (const channelz::SubchannelRef& ref : one.subchannel_ref()) {
      channelz::GetSubchannelRequest of_subchannel;
      of_subchannel.set_subchannel_id(ref.subchannel_id());
      const auto subchannel = Ask(&Channelz::Stub::GetSubchannel, of_subchannel).subchannel();
      EXPECT_EQ(subchannel.ref().subchannel_id(), ref.subchannel_id());
      ++subchannels;
    }
  }
  EXPECT_GE(subchannels, 1);
}

TEST_F(ChannelzTest, WhatIsNotThereIsNotFound) {
  Start();
  const auto [server_id, socket_id] = ServerAndSocket();
  // The last two are of the wrong kind for some, and do not exist at all for others.
  for (const int64_t id : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(),
                           std::numeric_limits<int64_t>::max(), int64_t{1} << 40}) {
    channelz::GetServerRequest server;
    server.set_server_id(id);
    EXPECT_EQ(CodeOf(&Channelz::Stub::GetServer, server), grpc::StatusCode::NOT_FOUND) << id;
    channelz::GetServerSocketsRequest sockets;
    sockets.set_server_id(id);
    EXPECT_EQ(CodeOf(&Channelz::Stub::GetServerSockets, sockets), grpc::StatusCode::NOT_FOUND)
        << id;
    channelz::GetChannelRequest channel;
    channel.set_channel_id(id);
    EXPECT_EQ(CodeOf(&Channelz::Stub::GetChannel, channel), grpc::StatusCode::NOT_FOUND) << id;
    channelz::GetSubchannelRequest subchannel;
    subchannel.set_subchannel_id(id);
    EXPECT_EQ(CodeOf(&Channelz::Stub::GetSubchannel, subchannel), grpc::StatusCode::NOT_FOUND)
        << id;
    channelz::GetSocketRequest socket;
    socket.set_socket_id(id);
    EXPECT_EQ(CodeOf(&Channelz::Stub::GetSocket, socket), grpc::StatusCode::NOT_FOUND) << id;
  }
  channelz::GetServerRequest no_server;
  no_server.set_server_id(socket_id);
  EXPECT_EQ(CodeOf(&Channelz::Stub::GetServer, no_server), grpc::StatusCode::NOT_FOUND);
  channelz::GetSocketRequest no_socket;
  no_socket.set_socket_id(server_id);
  EXPECT_EQ(CodeOf(&Channelz::Stub::GetSocket, no_socket), grpc::StatusCode::NOT_FOUND);
  channelz::GetServerSocketsRequest negative;
  negative.set_server_id(server_id);
  negative.set_max_results(-1);
  EXPECT_EQ(CodeOf(&Channelz::Stub::GetServerSockets, negative), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ChannelzTest, ListsBeginAnywhere) {
  Start();
  for (const int64_t id :
       {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    channelz::GetServersRequest servers;
    servers.set_start_server_id(id);
    servers.set_max_results(-1);
    EXPECT_TRUE(Ask(&Channelz::Stub::GetServers, servers).end()) << id;
    channelz::GetTopChannelsRequest channels;
    channels.set_start_channel_id(id);
    EXPECT_TRUE(Ask(&Channelz::Stub::GetTopChannels, channels).end()) << id;
  }
}

TEST_F(ChannelzTest, BytesThatAreNoRequestAreRefused) {
  Start();
  EXPECT_EQ(CallRaw("/grpc.channelz.v1.Channelz/GetServer", "\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const std::string unknown = "\x7a\x80\x80\x10" + std::string(1 << 18, 'x');  // field 15
  EXPECT_EQ(CallRaw("/grpc.channelz.v1.Channelz/GetServer", unknown).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace castor::testing
