// A misbehaving client: it speaks just enough HTTP/2 to begin a gRPC call over a plain socket, and
// can break off anywhere. Not thread-safe.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace castor::testing {

class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~RawClient() { close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // The connection's preface and empty settings. The server's own are never acknowledged.
  bool SendPreface() {
    return Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") && Send(Frame(kSettings, 0, 0, ""));
  }
  // The same, but with a window of zero: the server may send no data on any stream.
  bool SendPrefaceOfADeafPeer() {
    return Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") &&
           Send(Frame(kSettings, 0, 0, std::string_view("\0\4\0\0\0\0", 6)));  // window: 0
  }

  // Begins a call on stream 1: headers, and a message that claims to be `announced` bytes long.
  // `message` may be shorter. It is sent as one frame, of at most 16 KiB.
  bool BeginCall(std::string_view path, std::string_view message, uint32_t announced) {
    return Send(HeadersOf(1, path) + MessageOf(1, message, announced));
  }

  // The frames of a call, for Send. Streams are odd numbers, each greater than the last. `more` is
  // one more header.
  static std::string HeadersOf(uint32_t stream, std::string_view path,
                               const std::pair<std::string, std::string>& more = {"x-more", ""}) {
    return Frame(kHeaders, 4 /* END_HEADERS */, stream,
                 Header(":method", "POST") + Header(":scheme", "http") + Header(":path", path) +
                     Header(":authority", "localhost") +
                     Header("content-type", "application/grpc") + Header("te", "trailers") +
                     Header(more.first, more.second));
  }
  // The first frame of a message, or all of it.
  static std::string MessageOf(uint32_t stream, std::string_view message, uint32_t announced,
                               bool last = true) {
    std::string body(1, '\0');
    for (int shift = 24; shift >= 0; shift -= 8) body += static_cast<char>(announced >> shift);
    return DataOf(stream, body.append(message), last && announced == message.size());
  }
  static std::string DataOf(uint32_t stream, std::string_view bytes, bool end_stream) {
    return Frame(kData, end_stream ? 1 : 0, stream, bytes);
  }
  static std::string ResetOf(uint32_t stream) {
    return Frame(kReset, 0, stream, std::string_view("\0\0\0\x8", 4));  // CANCEL
  }

  // Waits until the server closes, and drops what it sends meanwhile; false after 60 s.
  bool AwaitClosed() {
    char buffer[65536];
    pollfd readable{socket_, POLLIN, 0};
    while (poll(&readable, 1, 60'000) == 1) {
      if (recv(socket_, buffer, sizeof(buffer), 0) <= 0) return true;
    }
    return false;
  }

  // What the server sends until it closes, or is silent for 60 s.
  std::string ReadAll() {
    std::string bytes;
    char buffer[4096];
    pollfd readable{socket_, POLLIN, 0};
    while (poll(&readable, 1, 60'000) == 1) {
      const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
      if (got <= 0) break;
      bytes.append(buffer, static_cast<size_t>(got));
    }
    return bytes;
  }

  // Waits for the server's first bytes, which it sends to every connection that it accepts; false
  // after 60 s.
  bool AwaitGreeting() const {
    pollfd readable{socket_, POLLIN, 0};
    return poll(&readable, 1, 60'000) == 1;
  }

  // Resets the connection abruptly.
  void Vanish() {
    const linger now{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(socket_);
    socket_ = -1;
  }

 private:
  static constexpr uint8_t kData = 0;
  static constexpr uint8_t kHeaders = 1;
  static constexpr uint8_t kReset = 3;
  static constexpr uint8_t kSettings = 4;

  static std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
    std::string frame;
    for (int shift = 16; shift >= 0; shift -= 8)
      frame += static_cast<char>(payload.size() >> shift);
    frame += static_cast<char>(type);
    frame += static_cast<char>(flags);
    for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>(stream >> shift);
    return frame.append(payload);
  }

  // HPACK: a literal header with a literal name, not indexed.
  static std::string Header(std::string_view name, std::string_view value) {
    return std::string(1, '\0') + Length(name.size()).append(name) +
           Length(value.size()).append(value);
  }

  // HPACK: an integer with a prefix of 7 bits.
  static std::string Length(size_t length) {
    if (length < 127) return std::string(1, static_cast<char>(length));
    std::string bytes(1, '\x7f');
    for (length -= 127; length >= 128; length >>= 7) {
      bytes += static_cast<char>((length & 127) | 128);
    }
    return bytes += static_cast<char>(length);
  }

  int socket_;
  bool connected_ = false;
};

}  // namespace castor::testing
