// A plain HTTP client over a socket that sends whole or partial requests and reads the answers. Not
// thread-safe.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace castor::server {

class HttpClient {
 public:
  // An IPv4 or IPv6 socket, still to be connected.
  HttpClient() : HttpClient(sa_family_t{AF_INET}) {}
  explicit HttpClient(sa_family_t family)
      : family_(family), socket_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}

  // Connects to a port of this machine.
  explicit HttpClient(int port, sa_family_t family = AF_INET) : HttpClient(family) {
    Connect(port);
  }

  HttpClient(HttpClient&& other) noexcept
      : family_(other.family_),
        socket_(std::exchange(other.socket_, -1)),
        connected_(other.connected_) {}
  HttpClient& operator=(HttpClient&&) = delete;
  ~HttpClient() {
    if (socket_ >= 0) close(socket_);
  }

  void Connect(int port) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(port));
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = v4.sin_port;
    v6.sin6_addr = in6addr_loopback;
    const bool four = family_ == AF_INET;
    connected_ =
        connect(socket_, four ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6),
                four ? sizeof(v4) : sizeof(v6)) == 0;
  }

  bool connected() const { return connected_; }
  int descriptor() const { return socket_; }

  bool Send(std::string_view text) {
    return send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }

  // Reads until the other side closes.
  std::string ReadAll() {
    std::string response;
    char buffer[8192];
    for (ssize_t n; (n = read(socket_, buffer, sizeof(buffer))) > 0;) response.append(buffer, n);
    return response;
  }

  // The answer to "METHOD PATH"; then the connection closes.
  // `headers`: more of them, each with its end of line.
  std::string Ask(const std::string& method, const std::string& path,
                  const std::string& headers = "", const std::string& body = "") {
    return Send(method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers +
                "\r\n" + body)
               ? ReadAll()
               : "";
  }

 private:
  sa_family_t family_;
  int socket_;
  bool connected_ = false;
};

inline std::string HttpGet(int port, const std::string& path, sa_family_t family = AF_INET) {
  return HttpClient(port, family).Ask("GET", path);
}

}  // namespace castor::server
