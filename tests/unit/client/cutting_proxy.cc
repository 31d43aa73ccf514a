#include "tests/unit/client/cutting_proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace castor {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int NewSocket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

}  // namespace

CuttingProxy::CuttingProxy(int port) : port_(port), listener_(NewSocket()) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener_, generic, size), 0);
  EXPECT_EQ(listen(listener_, 16), 0);
  EXPECT_EQ(getsockname(listener_, generic, &size), 0);
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  thread_ = std::thread([this] { Run(); });
}

CuttingProxy::~CuttingProxy() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  shutdown(listener_, SHUT_RDWR);  // wakes the thread
  Cut();
  thread_.join();
  for (const Pair& pair : pairs_) {
    close(pair.client);
    close(pair.server);
  }
  close(listener_);
}

void CuttingProxy::RefuseNext(int connections) {
  std::lock_guard<std::mutex> lock(mu_);
  refusals_ = connections;
}

void CuttingProxy::Cut() {
  std::lock_guard<std::mutex> lock(mu_);
  for (const Pair& pair : pairs_) {
    shutdown(pair.client, SHUT_RDWR);
    shutdown(pair.server, SHUT_RDWR);
  }
}

void CuttingProxy::Accept() {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  std::lock_guard<std::mutex> lock(mu_);
  const int server = NewSocket();
  const sockaddr_in address = Loopback(port_);
  if (refusals_ > 0 || stopping_ ||
      connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (refusals_ > 0) --refusals_;
    close(client);
    close(server);
    return;
  }
  pairs_.push_back({client, server});
}

bool CuttingProxy::Pass(int from, int to) {
  char bytes[16384];
  const ssize_t got = recv(from, bytes, sizeof(bytes), 0);
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t put = send(to, bytes + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
    if (put <= 0) return false;
    sent += put;
  }
  return got > 0;
}

void CuttingProxy::Run() {
  while (true) {
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (stopping_) return;
      for (const Pair& pair : pairs_) {
        polled.push_back({pair.client, POLLIN, 0});
        polled.push_back({pair.server, POLLIN, 0});
      }
    }
    poll(polled.data(), polled.size(), -1);
    for (size_t i = 1; i < polled.size(); i += 2) {
      const Pair pair{polled[i].fd, polled[i + 1].fd};
      if ((polled[i].revents == 0 || Pass(pair.client, pair.server)) &&
          (polled[i + 1].revents == 0 || Pass(pair.server, pair.client))) {
        continue;
      }
      std::lock_guard<std::mutex> lock(mu_);
      std::erase_if(pairs_, [&](const Pair& other) { return other.client == pair.client; });
      close(pair.client);
      close(pair.server);
    }
    if (polled[0].revents != 0) Accept();
  }
}

}  // namespace castor
