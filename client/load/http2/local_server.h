// A gRPC server in this process, on a thread and a Unix socket of its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "client/load/http2/server_connection.h"

namespace castor::load {

class LocalServer {
 public:
  // What a request gets; see ServerConnection::OnRequest. Called on the server's thread.
  using Handler = std::function<void(ServerConnection& connection, int32_t stream,
                                     std::string_view path, std::string_view body)>;

  // Answers every call with nothing: what a test of the client's speed asks for.
  static void Echo(ServerConnection& connection, int32_t stream, std::string_view path,
                   std::string_view body);

  // Listens at `target`, unix-abstract:NAME; empty: at one of its own. Throws ServerError if it
  // cannot.
  explicit LocalServer(Handler handler, const ServerLimits& limits = {},
                       const std::string& target = "");
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  const std::string& target() const { return target_; }

 private:
  void Serve();
  void Accept();

  const Handler handler_;
  const ServerLimits limits_;
  std::string target_;
  int listener_ = -1, stop_ = -1, epoll_ = -1;
  struct Client {
    std::unique_ptr<ServerConnection> connection;
    bool watched_for_room = true;  // at first, to send the settings
  };
  std::map<int, Client> clients_;  // by socket; of the thread
  std::thread thread_;
};

}  // namespace castor::load
