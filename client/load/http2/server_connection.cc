#include "client/load/http2/server_connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "client/load/http2/header.h"

namespace castor::load {
namespace {

constexpr size_t kReadSize = 256 << 10;
// Read() returns after so much, so that one busy client holds up no answer of another's.
constexpr int kReadsAtOnce = 4;

// libnghttp2 copies the value.
nghttp2_nv WithValue(std::string_view name, std::string_view value) {
  return Header(name, value, NGHTTP2_NV_FLAG_NO_COPY_NAME);
}

}  // namespace

nghttp2_session_callbacks* ServerConnection::Callbacks() {
  static nghttp2_session_callbacks* const callbacks = [] {
    nghttp2_session_callbacks* made = nullptr;
    nghttp2_session_callbacks_new(&made);
    nghttp2_session_callbacks_set_on_begin_headers_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          static_cast<ServerConnection*>(self)->calls_[frame->hd.stream_id];
          return 0;
        });
    nghttp2_session_callbacks_set_on_header_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t length,
                 const uint8_t* value, size_t value_length, uint8_t, void* self) {
          constexpr std::string_view kPath = ":path";
          if (length != kPath.size() || std::memcmp(name, kPath.data(), length) != 0) return 0;
          static_cast<ServerConnection*>(self)->calls_[frame->hd.stream_id].path.assign(
              reinterpret_cast<const char*>(value), value_length);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        made, [](nghttp2_session*, uint8_t, int32_t stream, const uint8_t* data, size_t length,
                 void* self) {
          auto* const connection = static_cast<ServerConnection*>(self);
          if (connection->limits_.keep_bodies) {
            connection->calls_[stream].body.append(reinterpret_cast<const char*>(data), length);
          }
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          const bool message = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
          if (message && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
            static_cast<ServerConnection*>(self)->Ended(frame->hd.stream_id);
          }
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        made, [](nghttp2_session*, int32_t stream, uint32_t, void* self) {
          static_cast<ServerConnection*>(self)->calls_.erase(stream);
          return 0;
        });
    return made;
  }();
  return callbacks;
}

ServerConnection::ServerConnection(int socket, const ServerLimits& limits, OnRequest on_request)
    : socket_(socket), limits_(limits), on_request_(std::move(on_request)) {
  nghttp2_option* option = nullptr;
  nghttp2_option_new(&option);
  nghttp2_option_set_no_closed_streams(option, 1);
  // Clients that are tested cancel as fast as they like.
  constexpr uint64_t kUnlimited = std::numeric_limits<uint32_t>::max();
  nghttp2_option_set_stream_reset_rate_limit(option, kUnlimited, kUnlimited);
  nghttp2_session_server_new2(&session_, Callbacks(), this, option);
  nghttp2_option_del(option);
  const std::array<nghttp2_settings_entry, 3> settings = {
      {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<uint32_t>(limits_.window)},
       {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kLargeFrame},
       {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits_.max_streams}}};
  const size_t count = settings.size() - (limits_.max_streams == 0 ? 1 : 0);
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), count);
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWideWindow);
  in_.resize(kReadSize);
  if (limits.tls != nullptr) tls_ = TlsSession::Server(limits.tls, out_);
}

ServerConnection::~ServerConnection() {
  nghttp2_session_del(session_);
  close(socket_);
}

bool ServerConnection::TakeFrames(const uint8_t* bytes, size_t size) {
  return nghttp2_session_mem_recv(session_, bytes, size) == static_cast<ssize_t>(size);
}

bool ServerConnection::TakeRecords(const uint8_t* bytes, size_t size) {
  static thread_local std::array<uint8_t, 16 << 10> plain;  // as much as a record holds
  tls_->Feed(bytes, size);
  while (const size_t got = tls_->Decrypt(plain.data(), plain.size())) {
    if (!TakeFrames(plain.data(), got)) return false;
  }
  if (!tls_->failed()) return true;
  (void)!send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);  // the alert
  return false;
}

bool ServerConnection::Read() {
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t got = recv(socket_, in_.data(), in_.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    const auto size = static_cast<size_t>(got);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(in_.data());
    if (!(tls_ == nullptr ? TakeFrames(bytes, size) : TakeRecords(bytes, size))) return false;
    if (size < in_.size()) return true;
  }
  return true;
}

void ServerConnection::Ended(int32_t stream) {
  const auto call = calls_.find(stream);
  if (call == calls_.end()) return;
  // Moved out: what on_request_ submits may end the call.
  const std::string path = std::move(call->second.path), body = std::move(call->second.body);
  on_request_(stream, path, body);
}

ssize_t ServerConnection::ReadAnswer(int32_t stream, uint8_t* to, size_t room, uint32_t* flags) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  Call& call = found->second;
  const size_t size = std::min(room, call.answer.size() - call.answered);
  std::memcpy(to, call.answer.data() + call.answered, size);
  call.answered += size;
  if (call.answered == call.answer.size()) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    const nghttp2_nv trailer = WithValue("grpc-status", "0");
    nghttp2_submit_trailer(session_, stream, &trailer, 1);
  }
  return static_cast<ssize_t>(size);
}

void ServerConnection::SubmitMessage(int32_t stream, std::string message) {
  const auto call = calls_.find(stream);
  if (call == calls_.end()) return;
  call->second.answer = std::move(message);
  const std::array<nghttp2_nv, 2> headers = {WithValue(":status", "200"),
                                             WithValue("content-type", "application/grpc")};
  nghttp2_data_provider provider{};
  provider.read_callback = [](nghttp2_session*, int32_t id, uint8_t* to, size_t room,
                              uint32_t* flags, nghttp2_data_source*, void* self) {
    return static_cast<ServerConnection*>(self)->ReadAnswer(id, to, room, flags);
  };
  nghttp2_submit_response(session_, stream, headers.data(), headers.size(), &provider);
}

void ServerConnection::SubmitStatus(int32_t stream, const char* code, const char* message,
                                    const std::string& details) {
  if (!calls_.contains(stream)) return;
  const std::array<nghttp2_nv, 5> headers = {
      WithValue(":status", "200"), WithValue("content-type", "application/grpc"),
      WithValue("grpc-status", code), WithValue("grpc-message", message),
      WithValue("grpc-status-details-bin", details)};
  const size_t count = headers.size() - (details.empty() ? 1 : 0);
  nghttp2_submit_response(session_, stream, headers.data(), count, nullptr);
}

void ServerConnection::SubmitReset(int32_t stream, uint32_t http2_error) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, http2_error);
}

void ServerConnection::SubmitLeave() {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
}

bool ServerConnection::Gather() {
  static thread_local std::string plain;
  plain.clear();
  std::string& frames = tls_ == nullptr ? out_ : plain;
  // Many frames by one call of send(): the calls cost more than the frames.
  while (frames.size() < kReadSize) {
    const uint8_t* frame = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &frame);
    if (size < 0) return false;
    if (size == 0) break;
    frames.append(reinterpret_cast<const char*>(frame), static_cast<size_t>(size));
  }
  if (tls_ == nullptr) return true;
  tls_->Encrypt(plain);
  return !tls_->failed();
}

bool ServerConnection::Flush() {
  for (;;) {
    const bool greeting = tls_ != nullptr && !tls_->established();
    if (!greeting && out_.size() < kReadSize && !Gather()) return false;
    if (out_.empty()) {
      return greeting || nghttp2_session_want_read(session_) != 0 ||
             nghttp2_session_want_write(session_) != 0;
    }
    while (sent_ < out_.size()) {
      const ssize_t sent = send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN;
      sent_ += static_cast<size_t>(sent);
    }
    out_.clear();
    sent_ = 0;
  }
}

}  // namespace castor::load
