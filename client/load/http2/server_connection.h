// The server's side of one HTTP/2 connection: gRPC's unary calls by libnghttp2, at a fraction of
// what a gRPC server spends on each. The echo of a calibration is one, and so are servers for
// tests.
#pragma once

#include <nghttp2/nghttp2.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "client/load/http2/header.h"
#include "client/load/http2/tls_session.h"

namespace castor::load {

struct ServerLimits {
  bool keep_bodies = false;      // else requests come without
  int32_t window = kWideWindow;  // bytes of a stream on their way
  uint32_t max_streams = 0;      // at a time; 0: no bound
  SSL_CTX* tls = nullptr;        // for connections' sessions; null: plaintext
};

// Not thread-safe. Owns the socket.
class ServerConnection {
 public:
  // Called with each request once it has come whole. `body` holds gRPC's prefix and the message,
  // and is empty unless they are kept. Both views are valid during the call.
  using OnRequest =
      std::function<void(int32_t stream, std::string_view path, std::string_view body)>;

  ServerConnection(int socket, const ServerLimits& limits, OnRequest on_request);
  ~ServerConnection();
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  // Reads what has come. False when the connection is at its end.
  bool Read();

  // Ends a call with OK and this framed message; or with a status. What the client has cancelled
  // meanwhile is ignored. Nothing is sent before Flush().
  void SubmitMessage(int32_t stream, std::string message);
  void SubmitStatus(int32_t stream, const char* code, const char* message,
                    const std::string& details);

  // Resets a call.
  void SubmitReset(int32_t stream, uint32_t http2_error);
  // Asks the client to leave: what is open is answered, and nothing more is taken.
  void SubmitLeave();

  // Sends as much as the socket takes. False when the connection is at its end.
  bool Flush();
  // Whether Flush() left something because the socket was full.
  bool blocked() const { return sent_ < out_.size(); }

  int socket() const { return socket_; }
  // The common name in the client's certificate; "" if it has none.
  std::string peer() const { return tls_ != nullptr ? tls_->peer() : ""; }

 private:
  struct Call {
    std::string path, body;
    std::string answer;
    size_t answered = 0;  // bytes of it that were handed out
  };

  static nghttp2_session_callbacks* Callbacks();
  bool TakeFrames(const uint8_t* bytes, size_t size);
  bool TakeRecords(const uint8_t* bytes, size_t size);  // the same, of TLS
  // Appends a buffer's worth of frames, if there are so many, to out_.
  bool Gather();
  void Ended(int32_t stream);
  ssize_t ReadAnswer(int32_t stream, uint8_t* to, size_t room, uint32_t* flags);

  const int socket_;
  const ServerLimits limits_;
  const OnRequest on_request_;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<int32_t, Call> calls_;  // open streams
  std::string in_, out_;
  size_t sent_ = 0;                  // bytes of out_
  std::unique_ptr<TlsSession> tls_;  // null: plaintext
};

}  // namespace castor::load
