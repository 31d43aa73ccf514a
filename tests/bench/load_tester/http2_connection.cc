#include "tests/bench/load_tester/http2_connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace castor::bench {
namespace {

constexpr int32_t kWindow = 1 << 30;  // of requests' bytes: no client ever waits for it
constexpr size_t kReadSize = 256 << 10;
// Read() returns after so much, so that one busy client holds up no answer of another's.
constexpr int kReadsAtOnce = 4;

nghttp2_nv Header(std::string_view name, std::string_view value) {
  // libnghttp2 takes pointers that are not const, and does not write there.
  return {.name = reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          .value = reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())),
          .namelen = name.size(),
          .valuelen = value.size(),
          .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

}  // namespace

nghttp2_session_callbacks* Http2Connection::Callbacks() {
  static nghttp2_session_callbacks* const callbacks = [] {
    nghttp2_session_callbacks* made = nullptr;
    nghttp2_session_callbacks_new(&made);
    nghttp2_session_callbacks_set_on_begin_headers_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          static_cast<Http2Connection*>(self)->calls_[frame->hd.stream_id];
          return 0;
        });
    nghttp2_session_callbacks_set_on_header_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t length,
                 const uint8_t* value, size_t value_length, uint8_t, void* self) {
          constexpr std::string_view kPath = ":path";
          if (length != kPath.size() || std::memcmp(name, kPath.data(), length) != 0) return 0;
          static_cast<Http2Connection*>(self)->calls_[frame->hd.stream_id].method =
              MethodOf({reinterpret_cast<const char*>(value), value_length});
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        made, [](nghttp2_session*, uint8_t, int32_t stream, const uint8_t* data, size_t length,
                 void* self) {
          auto* const connection = static_cast<Http2Connection*>(self);
          if (connection->keep_bodies_) {
            connection->calls_[stream].body.append(reinterpret_cast<const char*>(data), length);
          }
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        made, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          const bool message = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
          if (message && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
            static_cast<Http2Connection*>(self)->Ended(frame->hd.stream_id);
          }
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        made, [](nghttp2_session*, int32_t stream, uint32_t, void* self) {
          static_cast<Http2Connection*>(self)->calls_.erase(stream);
          return 0;
        });
    return made;
  }();
  return callbacks;
}

Http2Connection::Http2Connection(int socket, bool keep_bodies, OnRequest on_request)
    : socket_(socket), keep_bodies_(keep_bodies), on_request_(std::move(on_request)) {
  nghttp2_option* option = nullptr;
  nghttp2_option_new(&option);
  nghttp2_option_set_no_closed_streams(option, 1);
  // Clients that are tested cancel as fast as they like.
  constexpr uint64_t kUnlimited = std::numeric_limits<uint32_t>::max();
  nghttp2_option_set_stream_reset_rate_limit(option, kUnlimited, kUnlimited);
  nghttp2_session_server_new2(&session_, Callbacks(), this, option);
  nghttp2_option_del(option);
  const std::array<nghttp2_settings_entry, 2> settings = {
      {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow},
       {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, 1 << 20}}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWindow);
  in_.resize(kReadSize);
}

Http2Connection::~Http2Connection() {
  nghttp2_session_del(session_);
  close(socket_);
}

bool Http2Connection::Read() {
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t got = recv(socket_, in_.data(), in_.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    const auto size = static_cast<size_t>(got);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(in_.data());
    if (nghttp2_session_mem_recv(session_, bytes, size) != got) return false;
    if (size < in_.size()) return true;
  }
  return true;
}

void Http2Connection::Ended(int32_t stream) {
  const auto call = calls_.find(stream);
  if (call == calls_.end()) return;
  const std::string body = std::move(call->second.body);
  on_request_(stream, call->second.method, body);
}

ssize_t Http2Connection::ReadAnswer(int32_t stream, uint8_t* to, size_t room, uint32_t* flags) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  Call& call = found->second;
  const size_t size = std::min(room, call.answer.size() - call.answered);
  std::memcpy(to, call.answer.data() + call.answered, size);
  call.answered += size;
  if (call.answered == call.answer.size()) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    const nghttp2_nv trailer = Header("grpc-status", "0");
    nghttp2_submit_trailer(session_, stream, &trailer, 1);
  }
  return static_cast<ssize_t>(size);
}

void Http2Connection::SubmitMessage(int32_t stream, std::string message) {
  const auto call = calls_.find(stream);
  if (call == calls_.end()) return;
  call->second.answer = std::move(message);
  const std::array<nghttp2_nv, 2> headers = {Header(":status", "200"),
                                             Header("content-type", "application/grpc")};
  nghttp2_data_provider provider{};
  provider.read_callback = [](nghttp2_session*, int32_t id, uint8_t* to, size_t room,
                              uint32_t* flags, nghttp2_data_source*, void* self) {
    return static_cast<Http2Connection*>(self)->ReadAnswer(id, to, room, flags);
  };
  nghttp2_submit_response(session_, stream, headers.data(), headers.size(), &provider);
}

void Http2Connection::SubmitStatus(int32_t stream, const char* code, const char* message,
                                   const std::string& details) {
  if (!calls_.contains(stream)) return;
  const std::array<nghttp2_nv, 5> headers = {
      Header(":status", "200"), Header("content-type", "application/grpc"),
      Header("grpc-status", code), Header("grpc-message", message),
      Header("grpc-status-details-bin", details)};
  const size_t count = headers.size() - (details.empty() ? 1 : 0);
  nghttp2_submit_response(session_, stream, headers.data(), count, nullptr);
}

bool Http2Connection::Flush() {
  for (;;) {
    // Many frames by one call of send(): the calls cost more than the frames.
    while (out_.size() < kReadSize) {
      const uint8_t* frames = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &frames);
      if (size < 0) return false;
      if (size == 0) break;
      out_.append(reinterpret_cast<const char*>(frames), static_cast<size_t>(size));
    }
    if (out_.empty()) {
      return nghttp2_session_want_read(session_) != 0 || nghttp2_session_want_write(session_) != 0;
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

}  // namespace castor::bench
