// One client's HTTP/2 connection to a scripted server: gRPC's unary calls by libnghttp2, a fraction
// of what a gRPC server spends on each.
#pragma once

#include <nghttp2/nghttp2.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tests/bench/load_tester/answers.h"

namespace castor::bench {

// Not thread-safe. Owns the socket.
class Http2Connection {
 public:
  // Called with each request once it has come whole. `body` holds gRPC's prefix and the message,
  // and is empty unless `keep_bodies`; it is valid during the call.
  using OnRequest = std::function<void(int32_t stream, Method method, std::string_view body)>;

  Http2Connection(int socket, bool keep_bodies, OnRequest on_request);
  ~Http2Connection();
  Http2Connection(const Http2Connection&) = delete;
  Http2Connection& operator=(const Http2Connection&) = delete;

  // Reads what has come. False when the connection is at its end.
  bool Read();

  // Ends a call with OK and this framed message; or with a status. What the client has cancelled
  // meanwhile is ignored. Nothing is sent before Flush().
  void SubmitMessage(int32_t stream, std::string message);
  void SubmitStatus(int32_t stream, const char* code, const char* message,
                    const std::string& details);

  // Sends as much as the socket takes. False when the connection is at its end.
  bool Flush();
  // Whether Flush() left something because the socket was full.
  bool blocked() const { return sent_ < out_.size(); }

  int socket() const { return socket_; }

 private:
  struct Call {
    Method method = Method::kUnknown;
    std::string body;
    std::string answer;
    size_t answered = 0;  // bytes of it that were handed out
  };

  static nghttp2_session_callbacks* Callbacks();
  void Ended(int32_t stream);
  ssize_t ReadAnswer(int32_t stream, uint8_t* to, size_t room, uint32_t* flags);

  const int socket_;
  const bool keep_bodies_;
  const OnRequest on_request_;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<int32_t, Call> calls_;  // open streams
  std::string in_, out_;
  size_t sent_ = 0;  // bytes of out_
};

}  // namespace castor::bench
