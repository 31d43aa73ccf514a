// The client's side of one HTTP/2 connection: gRPC's unary calls by libnghttp2. A gRPC channel
// spends some 12 us on each, and a third of it in a write of its own; here many calls leave in one
// write, and nothing is locked.
#pragma once

#include <grpcpp/support/status.h>
#include <nghttp2/nghttp2.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/load/base/clock.h"
#include "client/load/http2/address.h"
#include "client/load/http2/status.h"
#include "client/load/http2/tls_session.h"

namespace castor::load {

class ClientConnection;

// One call. Its owner fills in what is to be sent, all of which must outlive the call, and keeps
// the call where it is until it has ended.
struct UnaryCall {
  std::string_view path{}, authority{};
  std::string_view message{};
  const std::vector<std::pair<std::string, std::string>>* metadata = nullptr;  // null: none
  std::chrono::nanoseconds timeout{};  // what the server is told; above 0

  // Once it has ended: when, how, and the answer's message, which is whole if the status is OK.
  Clock::time_point done{};
  grpc::Status status{};
  std::string answer{};

  size_t link = 0;  // whose connection it takes, where there are several

  // Forgets what it was, and keeps the memory of short answers.
  void Reset();

 private:
  friend class ClientConnection;
  static constexpr size_t kPrefix = 5;  // gRPC's: a flag, and the message's length

  ClientConnection* connection_ = nullptr;  // while it is on its way
  int32_t stream_ = 0;
  size_t sent_ = 0;  // of the prefix and the message
  size_t prefix_read_ = 0;
  std::array<uint8_t, kPrefix> prefix_{};
  EndFields fields_{};
};

// Not thread-safe.
class ClientConnection {
 public:
  using Ended = std::vector<UnaryCall*>;

  // Begins to connect. Calls that end are appended to `ended`, which must outlive this. With `tls`,
  // the server's certificate must say `server_name`; null: plaintext.
  ClientConnection(const Address& address, Ended& ended, SSL_CTX* tls = nullptr,
                   const std::string& server_name = "");
  // Calls on their way end as UNAVAILABLE.
  ~ClientConnection();
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  // Whether the server has greeted: it speaks HTTP/2.
  bool ready() const { return ready_; }
  // Whether calls may be started: until the connection fails, the server asks to leave it, or its
  // streams are used up. Calls that are started before it is ready wait.
  bool open() const;
  bool failed() const { return failed_; }
  const std::string& failure() const { return failure_; }  // why
  // Whether it would fail again: the other side is not what TLS asks for.
  bool hopeless() const { return failed_ && tls_ != nullptr && tls_->hopeless(); }
  bool idle() const { return calls_.empty(); }
  // Whether the server has asked to leave it; it fails then once it is idle.
  bool leaving() const { return leaving_; }
  // Whether a call was answered over it.
  bool answered() const { return answered_; }
  int socket() const { return socket_; }

  // REQUIRES: open().
  void Start(UnaryCall& call);
  // Ends a call of this or another connection with this status, and tells its server. It is not
  // appended to `ended`.
  static void Cancel(UnaryCall& call, grpc::Status status);

  // Reads what has come, but not for long.
  void Read();
  // Sends what the socket takes, but not for long.
  void Flush();
  // After Flush(): whether it left something, and the socket was full (`blocked`) or not.
  bool unsent() const { return connecting_ || sent_ < out_.size() || more_; }
  bool blocked() const { return connecting_ || blocked_; }

 private:
  static nghttp2_session_callbacks* Callbacks();
  UnaryCall* CallOf(int32_t stream) const;
  ssize_t ReadMessage(int32_t stream, uint8_t* to, size_t room, uint32_t* flags) const;
  void TakeData(UnaryCall& call, const uint8_t* data, size_t size);
  void OnClosed(int32_t stream, uint32_t error);
  void End(UnaryCall& call, grpc::Status status);
  // Ends a call whose answer is not as gRPC has it.
  void Reject(UnaryCall& call, grpc::Status status);
  void Fail(std::string why);
  // Whether the socket is connected by now.
  bool FinishConnecting();
  // Takes bytes of HTTP/2. False if they make it fail.
  bool TakeFrames(const uint8_t* bytes, size_t size);
  bool TakeRecords(const uint8_t* bytes, size_t size);  // the same, of TLS
  // Appends a buffer's worth of frames, if there are so many, to out_. False if that fails.
  bool Gather();

  Ended& ended_;
  int socket_ = -1;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<int32_t, UnaryCall*> calls_;  // open streams
  std::string out_;
  size_t sent_ = 0;                  // bytes of out_
  std::unique_ptr<TlsSession> tls_;  // null: plaintext
  bool connecting_ = true, ready_ = false, leaving_ = false, failed_ = false;
  bool answered_ = false, blocked_ = false, more_ = false;
  std::string failure_;
};

}  // namespace castor::load
