// An HTTP server that sends each caller the same bytes, whatever it asks.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace castor::client {

class CannedServer {
 public:
  // Closes after the answer; sends an `endless` one until the caller has gone. Of none it waits.
  // With `tls`, answers those who may have a session of it.
  explicit CannedServer(std::string answer, bool endless = false,
                        std::shared_ptr<SSL_CTX> tls = nullptr)
      : answer_(std::move(answer)), endless_(endless), tls_(std::move(tls)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~CannedServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  CannedServer(const CannedServer&) = delete;
  CannedServer& operator=(const CannedServer&) = delete;

  std::string address() const { return (tls_ == nullptr ? "127.0.0.1:" : "localhost:") + port_; }

  // The next callers'.
  void Answer(std::string answer) {
    const std::lock_guard<std::mutex> lock(mu_);
    answer_ = std::move(answer);
  }

  // The last one that was answered.
  std::string request() const {
    const std::lock_guard<std::mutex> lock(mu_);
    return request_;
  }

 private:
  void Serve() {
    for (int caller; (caller = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      char bytes[4096];
      const std::unique_ptr<SSL, decltype(&SSL_free)> session(
          tls_ == nullptr ? nullptr : SSL_new(tls_.get()), SSL_free);
      if (session != nullptr) {
        SSL_set_fd(session.get(), caller);
        if (SSL_accept(session.get()) != 1) {
          End(caller);
          continue;
        }
      }
      const ssize_t got = session == nullptr ? recv(caller, bytes, sizeof(bytes), 0)
                                             : SSL_read(session.get(), bytes, sizeof(bytes));
      std::string answer;
      {
        const std::lock_guard<std::mutex> lock(mu_);
        request_.assign(bytes, got > 0 ? static_cast<size_t>(got) : 0);
        answer = answer_;
      }
      if (session != nullptr) {
        SSL_write(session.get(), answer.data(), static_cast<int>(answer.size()));
        SSL_shutdown(session.get());
        End(caller);
        continue;
      }
      while (send(caller, answer.data(), answer.size(), MSG_NOSIGNAL) > 0 && endless_) {
      }
      if (answer.empty()) recv(caller, bytes, sizeof(bytes), 0);  // until it gives up
      close(caller);
    }
  }

  // Lest a reset takes away what was sent last.
  static void End(int caller) {
    char bytes[4096];
    shutdown(caller, SHUT_WR);
    while (recv(caller, bytes, sizeof(bytes), 0) > 0) {
    }
    close(caller);
  }

  mutable std::mutex mu_;
  std::string answer_, request_;  // guarded by mu_
  const bool endless_;
  const std::shared_ptr<SSL_CTX> tls_;
  int listener_ = -1;
  std::string port_;
  std::thread thread_;
};

inline std::string Http(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

}  // namespace castor::client
