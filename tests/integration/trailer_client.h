// One gRPC call by libnghttp2, to see the fields of its answer as they travel: gRPC's own clients
// keep some of them, such as load reports, from the application.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace castor::testing {

using Fields = std::multimap<std::string, std::string>;

// Not thread-safe.
class TrailerClient {
 public:
  explicit TrailerClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, &OnHeader);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &OnClosed);
    nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  ~TrailerClient() {
    nghttp2_session_del(session_);
    close(socket_);
  }
  TrailerClient(const TrailerClient&) = delete;
  TrailerClient& operator=(const TrailerClient&) = delete;

  // Headers and trailers of the answer, binary ones in base64; those that came by then if the
  // server closes or is silent for 60 s.
  Fields Call(std::string_view path, std::string_view message) {
    body_.assign(1, '\0');
    for (int shift = 24; shift >= 0; shift -= 8) {
      body_ += static_cast<char>(message.size() >> shift);
    }
    body_.append(message);
    sent_ = 0;
    fields_.clear();
    done_ = false;
    const std::array<nghttp2_nv, 6> headers = {
        Header(":method", "POST"), Header(":scheme", "http"),
        Header(":path", path),     Header(":authority", "localhost"),
        Header("te", "trailers"),  Header("content-type", "application/grpc"),
    };
    nghttp2_data_provider data{};
    data.source.ptr = this;
    data.read_callback = &ReadBody;
    nghttp2_submit_request(session_, nullptr, headers.data(), headers.size(), &data, nullptr);
    std::array<uint8_t, 65536> buffer{};
    while (connected_ && !done_ && SendAll()) {
      pollfd readable{socket_, POLLIN, 0};
      if (poll(&readable, 1, 60'000) != 1) break;
      const ssize_t got = recv(socket_, buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      if (nghttp2_session_mem_recv(session_, buffer.data(), static_cast<size_t>(got)) < 0) break;
    }
    return fields_;
  }

 private:
  static nghttp2_nv Header(std::string_view name, std::string_view value) {
    return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
            reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
            NGHTTP2_NV_FLAG_NONE};
  }

  bool SendAll() {
    while (true) {
      const uint8_t* bytes = nullptr;
      ssize_t size = nghttp2_session_mem_send(session_, &bytes);
      if (size <= 0) return size == 0;
      while (size > 0) {
        const ssize_t sent = send(socket_, bytes, static_cast<size_t>(size), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes += sent;
        size -= sent;
      }
    }
  }

  static ssize_t ReadBody(nghttp2_session*, int32_t, uint8_t* to, size_t room, uint32_t* flags,
                          nghttp2_data_source* source, void*) {
    auto* client = static_cast<TrailerClient*>(source->ptr);
    const size_t size = std::min(room, client->body_.size() - client->sent_);
    std::memcpy(to, client->body_.data() + client->sent_, size);
    client->sent_ += size;
    if (client->sent_ == client->body_.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(size);
  }

  static int OnHeader(nghttp2_session*, const nghttp2_frame*, const uint8_t* name, size_t name_size,
                      const uint8_t* value, size_t value_size, uint8_t, void* client) {
    static_cast<TrailerClient*>(client)->fields_.emplace(
        std::string(reinterpret_cast<const char*>(name), name_size),
        std::string(reinterpret_cast<const char*>(value), value_size));
    return 0;
  }

  static int OnClosed(nghttp2_session*, int32_t, uint32_t, void* client) {
    static_cast<TrailerClient*>(client)->done_ = true;
    return 0;
  }

  int socket_;
  bool connected_ = false;
  nghttp2_session* session_ = nullptr;
  std::string body_;
  size_t sent_ = 0;
  Fields fields_;
  bool done_ = false;
};

}  // namespace castor::testing
