// An HTTP server that sends each caller the same bytes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace castor::client {

class CannedServer {
 public:
  // Closes after the answer. Sends an `endless` answer until the caller has gone; after an empty
  // one it waits for that.
  explicit CannedServer(std::string answer, bool endless = false)
      : answer_(std::move(answer)), endless_(endless) {
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

  std::string address() const { return "127.0.0.1:" + port_; }

  // Sets the answer to later callers.
  void Answer(std::string answer) {
    const std::lock_guard<std::mutex> lock(mu_);
    answer_ = std::move(answer);
  }

  // The last request that was answered.
  std::string request() const {
    const std::lock_guard<std::mutex> lock(mu_);
    return request_;
  }

 private:
  void Serve() {
    for (int caller; (caller = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      char bytes[4096];
      const ssize_t got = recv(caller, bytes, sizeof(bytes), 0);
      std::string answer;
      {
        const std::lock_guard<std::mutex> lock(mu_);
        request_.assign(bytes, got > 0 ? static_cast<size_t>(got) : 0);
        answer = answer_;
      }
      while (send(caller, answer.data(), answer.size(), MSG_NOSIGNAL) > 0 && endless_) {
      }
      if (answer.empty()) recv(caller, bytes, sizeof(bytes), 0);  // until it gives up
      close(caller);
    }
  }

  mutable std::mutex mu_;
  std::string answer_, request_;  // guarded by mu_
  const bool endless_;
  int listener_ = -1;
  std::string port_;
  std::thread thread_;
};

inline std::string Http(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

}  // namespace castor::client
