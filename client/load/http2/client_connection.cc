#include "client/load/http2/client_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "client/load/http2/header.h"

namespace castor::load {
namespace {

constexpr size_t kBuffer = 256 << 10;
constexpr size_t kRecord = 16 << 10;      // the most that a record of TLS holds
constexpr int kBuffersAtOnce = 4;         // what one Read() handles at most
constexpr int kFlushedAtOnce = 1;         // and one Flush(): the next request may be due
constexpr size_t kMaxKept = 64 << 10;     // of an answer's memory, from call to call
constexpr size_t kMaxReserved = 1 << 20;  // on the word of a prefix alone
constexpr uint32_t kMaxAnswer = 1U << 31;

constexpr std::string_view kUserAgent = "castor-load/" CASTOR_VERSION;

// gRPC's form: at most eight digits and a unit. Rounded up, so that it is never zero.
std::string TimeoutText(std::chrono::nanoseconds timeout) {
  constexpr int64_t kMost = 99'999'999;
  int64_t amount = std::max<int64_t>(1, (timeout.count() + 999) / 1000);
  if (amount <= kMost) return std::to_string(amount) + "u";
  amount = (amount + 999) / 1000;
  if (amount <= kMost) return std::to_string(amount) + "m";
  return std::to_string(std::min(kMost, (amount + 999) / 1000)) + "S";
}

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

void UnaryCall::Reset() {
  done = Clock::time_point();
  status = grpc::Status();
  if (answer.capacity() > kMaxKept) answer = std::string();
  answer.clear();
  fields_.Clear();
  connection_ = nullptr;
  sent_ = prefix_read_ = 0;
}

nghttp2_session_callbacks* ClientConnection::Callbacks() {
  static nghttp2_session_callbacks* const callbacks = [] {
    nghttp2_session_callbacks* made = nullptr;
    nghttp2_session_callbacks_new(&made);
    nghttp2_session_callbacks_set_on_header_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t length,
                 const uint8_t* value, size_t value_length, uint8_t, void* self) {
          auto* const connection = static_cast<ClientConnection*>(self);
          if (UnaryCall* const call = connection->CallOf(frame->hd.stream_id)) {
            call->fields_.Take({reinterpret_cast<const char*>(name), length},
                               {reinterpret_cast<const char*>(value), value_length});
          }
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        made, [](nghttp2_session*, uint8_t, int32_t stream, const uint8_t* data, size_t size,
                 void* self) {
          auto* const connection = static_cast<ClientConnection*>(self);
          if (UnaryCall* const call = connection->CallOf(stream)) {
            connection->TakeData(*call, data, size);
          }
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          auto* const connection = static_cast<ClientConnection*>(self);
          if (frame->hd.type == NGHTTP2_SETTINGS) connection->ready_ = true;
          if (frame->hd.type == NGHTTP2_GOAWAY) connection->leaving_ = true;
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        made, [](nghttp2_session*, int32_t stream, uint32_t error, void* self) {
          static_cast<ClientConnection*>(self)->OnClosed(stream, error);
          return 0;
        });
    // A request that never became a stream: the server has asked to leave before it was sent.
    nghttp2_session_callbacks_set_on_frame_not_send_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, int, void* self) {
          if (frame->hd.type == NGHTTP2_HEADERS) {
            static_cast<ClientConnection*>(self)->OnClosed(frame->hd.stream_id,
                                                           NGHTTP2_REFUSED_STREAM);
          }
          return 0;
        });
    return made;
  }();
  return callbacks;
}

ClientConnection::ClientConnection(const Address& address, Ended& ended, SSL_CTX* tls,
                                   const std::string& server_name)
    : ended_(ended) {
  nghttp2_option* option = nullptr;
  nghttp2_option_new(&option);
  nghttp2_option_set_no_closed_streams(option, 1);
  // Until the server has said how many streams it takes, it is sent none: it would refuse some.
  nghttp2_option_set_peer_max_concurrent_streams(option, 0);
  nghttp2_session_client_new2(&session_, Callbacks(), this, option);
  nghttp2_option_del(option);
  const std::array<nghttp2_settings_entry, 3> settings = {
      {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
       {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWideWindow},
       {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kLargeFrame}}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWideWindow);
  if (tls != nullptr) tls_ = TlsSession::Client(tls, server_name, out_);
  socket_ = StartConnecting(address);
  if (socket_ < 0) Fail(std::strerror(errno));
}

ClientConnection::~ClientConnection() {
  Fail("the connection was closed");
  nghttp2_session_del(session_);
}

bool ClientConnection::open() const {
  return !failed_ && !leaving_ && nghttp2_session_check_request_allowed(session_) != 0;
}

UnaryCall* ClientConnection::CallOf(int32_t stream) const {
  const auto call = calls_.find(stream);
  return call != calls_.end() ? call->second : nullptr;
}

void ClientConnection::Start(UnaryCall& call) {
  constexpr uint8_t kStays = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
  const std::string timeout = TimeoutText(call.timeout);
  absl::InlinedVector<nghttp2_nv, 12> headers = {
      Header(":method", "POST", kStays),
      Header(":scheme", tls_ != nullptr ? "https" : "http", kStays),
      Header(":path", call.path, kStays), Header(":authority", call.authority, kStays),
      Header("te", "trailers", kStays), Header("content-type", "application/grpc", kStays),
      Header("user-agent", kUserAgent, kStays),
      // It differs from call to call: not worth a place in the connection's table of headers.
      Header("grpc-timeout", timeout, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX)};
  if (call.metadata != nullptr) {
    for (const auto& [name, value] : *call.metadata) headers.push_back(Header(name, value, kStays));
  }
  nghttp2_data_provider provider{};
  provider.read_callback = [](nghttp2_session*, int32_t stream, uint8_t* to, size_t room,
                              uint32_t* flags, nghttp2_data_source*, void* self) {
    return static_cast<ClientConnection*>(self)->ReadMessage(stream, to, room, flags);
  };
  const int32_t stream =
      nghttp2_submit_request(session_, nullptr, headers.data(), headers.size(), &provider, nullptr);
  if (stream < 0) {
    End(call, {grpc::StatusCode::UNAVAILABLE, nghttp2_strerror(stream)});
    return;
  }
  call.connection_ = this;
  call.stream_ = stream;
  calls_.emplace(stream, &call);
}

void ClientConnection::Cancel(UnaryCall& call, grpc::Status status) {
  ClientConnection* const connection = call.connection_;
  call.done = Clock::now();
  call.status = std::move(status);
  if (connection == nullptr) return;
  connection->calls_.erase(call.stream_);
  call.connection_ = nullptr;
  nghttp2_submit_rst_stream(connection->session_, NGHTTP2_FLAG_NONE, call.stream_, NGHTTP2_CANCEL);
}

ssize_t ClientConnection::ReadMessage(int32_t stream, uint8_t* to, size_t room,
                                      uint32_t* flags) const {
  UnaryCall* const call = CallOf(stream);
  if (call == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  // The room may be as little as a byte: what is left of the server's window.
  const auto length = static_cast<uint32_t>(call->message.size());
  const std::array<uint8_t, UnaryCall::kPrefix> prefix = {
      0, static_cast<uint8_t>(length >> 24), static_cast<uint8_t>(length >> 16),
      static_cast<uint8_t>(length >> 8), static_cast<uint8_t>(length)};
  size_t written = 0;
  while (written < room && call->sent_ < prefix.size()) to[written++] = prefix[call->sent_++];
  if (call->sent_ < prefix.size()) return static_cast<ssize_t>(written);
  const size_t from = call->sent_ - prefix.size();
  const size_t size = std::min(room - written, call->message.size() - from);
  std::memcpy(to + written, call->message.data() + from, size);
  call->sent_ += size;
  if (from + size == call->message.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
  return static_cast<ssize_t>(written + size);
}

void ClientConnection::TakeData(UnaryCall& call, const uint8_t* data, size_t size) {
  while (call.prefix_read_ < UnaryCall::kPrefix && size > 0) {
    call.prefix_[call.prefix_read_++] = *data++;
    --size;
  }
  if (call.prefix_read_ < UnaryCall::kPrefix) return;
  if (call.prefix_[0] != 0) {
    return Reject(call, {grpc::StatusCode::INTERNAL, "the answer is compressed, unasked"});
  }
  const uint32_t length = BigEndian(call.prefix_.data() + 1);
  if (length >= kMaxAnswer) {
    return Reject(call, {grpc::StatusCode::RESOURCE_EXHAUSTED, "the answer exceeds 2 GiB"});
  }
  if (size > length - call.answer.size()) {
    return Reject(call, {grpc::StatusCode::INTERNAL, "more came than one message"});
  }
  if (call.answer.empty()) call.answer.reserve(std::min<size_t>(length, kMaxReserved));
  call.answer.append(reinterpret_cast<const char*>(data), size);
}

void ClientConnection::OnClosed(int32_t stream, uint32_t error) {
  UnaryCall* const call = CallOf(stream);
  if (call == nullptr) return;
  answered_ = answered_ || call->fields_.grpc_status >= 0;
  grpc::Status status = StatusOf(call->fields_, error);
  if (status.ok() && (call->prefix_read_ < UnaryCall::kPrefix ||
                      call->answer.size() != BigEndian(call->prefix_.data() + 1))) {
    status = {grpc::StatusCode::INTERNAL, "the status is OK, and the answer is cut"};
  }
  calls_.erase(stream);
  End(*call, std::move(status));
}

void ClientConnection::End(UnaryCall& call, grpc::Status status) {
  call.connection_ = nullptr;
  call.done = Clock::now();
  call.status = std::move(status);
  ended_.push_back(&call);
}

void ClientConnection::Reject(UnaryCall& call, grpc::Status status) {
  Cancel(call, std::move(status));
  ended_.push_back(&call);
}

void ClientConnection::Fail(std::string why) {
  if (failed_) return;
  failed_ = true;
  connecting_ = blocked_ = more_ = false;
  failure_ = std::move(why);
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  for (const auto& [stream, call] : std::exchange(calls_, {})) {
    End(*call, {grpc::StatusCode::UNAVAILABLE, failure_});
  }
}

bool ClientConnection::FinishConnecting() {
  pollfd poller{.fd = socket_, .events = POLLOUT, .revents = 0};
  if (poll(&poller, 1, 0) == 0) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    Fail(std::strerror(error));
    return false;
  }
  connecting_ = false;
  return true;
}

bool ClientConnection::TakeFrames(const uint8_t* bytes, size_t size) {
  const ssize_t read = nghttp2_session_mem_recv(session_, bytes, size);
  if (read == static_cast<ssize_t>(size)) return true;
  constexpr uint8_t kAlert = 0x15, kTls = 3;  // how a TLS server answers plaintext
  if (!ready_ && tls_ == nullptr && size >= 2 && bytes[0] == kAlert && bytes[1] == kTls) {
    Fail("the server is on TLS: see --tls");
  } else {
    Fail(std::string("the server does not speak HTTP/2: ") +
         nghttp2_strerror(static_cast<int>(read)));
  }
  return false;
}

bool ClientConnection::TakeRecords(const uint8_t* bytes, size_t size) {
  static thread_local std::array<uint8_t, kRecord> plain;
  tls_->Feed(bytes, size);
  while (const size_t got = tls_->Decrypt(plain.data(), plain.size())) {
    if (!TakeFrames(plain.data(), got)) return false;
  }
  if (!tls_->failed()) return true;
  // The alert, so that the server knows, too.
  if (sent_ < out_.size()) {
    (void)!send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
  }
  Fail(tls_->failure());
  return false;
}

void ClientConnection::Read() {
  static thread_local std::array<uint8_t, kBuffer> in;  // for all connections of a thread
  if (connecting_ && !FinishConnecting()) return;
  for (int i = 0; i < kBuffersAtOnce && !failed_; ++i) {
    const ssize_t got = recv(socket_, in.data(), in.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const int error = errno;
    if (got <= 0 && !ready_ && tls_ != nullptr) {
      tls_->Close();
      return Fail(tls_->failure());
    }
    if (got < 0) return Fail(std::strerror(error));
    if (got == 0) {
      return Fail(ready_ ? "the server closed the connection"
                         : "the server closed the connection before it greeted: is it on TLS? "
                           "See --tls");
    }
    const auto size = static_cast<size_t>(got);
    if (!(tls_ == nullptr ? TakeFrames(in.data(), size) : TakeRecords(in.data(), size))) return;
    if (size < in.size()) return;
  }
}

bool ClientConnection::Gather() {
  static thread_local std::string plain;
  plain.clear();
  std::string& frames = tls_ == nullptr ? out_ : plain;
  // Many frames in one write: writes cost more than frames.
  while (frames.size() < kBuffer) {
    const uint8_t* frame = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &frame);
    if (size < 0) {
      Fail(nghttp2_strerror(static_cast<int>(size)));
      return false;
    }
    if (size == 0) break;
    frames.append(reinterpret_cast<const char*>(frame), static_cast<size_t>(size));
  }
  if (tls_ == nullptr) return true;
  tls_->Encrypt(plain);
  if (tls_->failed()) Fail(tls_->failure());
  return !failed_;
}

void ClientConnection::Flush() {
  if (failed_ || (connecting_ && !FinishConnecting())) return;
  blocked_ = more_ = false;
  const bool greeting = tls_ != nullptr && !tls_->established();
  for (int i = 0; i < kFlushedAtOnce; ++i) {
    // What is left of the last time goes first: else out_ would grow and grow.
    if (!greeting && out_.size() < kBuffer && !Gather()) return;
    if (out_.empty()) {
      const bool over = !greeting && nghttp2_session_want_read(session_) == 0 &&
                        nghttp2_session_want_write(session_) == 0;
      if (over) Fail("the connection was ended");
      return;
    }
    while (sent_ < out_.size()) {
      const ssize_t sent = send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) {
        blocked_ = true;
        return;
      }
      if (sent < 0) return Fail(std::strerror(errno));
      sent_ += static_cast<size_t>(sent);
    }
    out_.clear();
    sent_ = 0;
    if (greeting) return;
  }
  more_ = true;
}

}  // namespace castor::load
