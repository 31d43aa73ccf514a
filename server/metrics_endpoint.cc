#include "server/metrics_endpoint.h"

#include <netdb.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/mutex.h"

namespace castor::server {
namespace {

constexpr std::chrono::milliseconds kKnockInterval{5};

// The host of "HOST:PORT" or "[HOST]:PORT".
std::string HostOf(const std::string& listen) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const std::string& listen, std::span<const std::shared_ptr<prometheus::Collectable>> sources) {
  // prometheus-cpp reports errors by exceptions, and says little in them.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
        "listening_ports", listen, "num_threads", "2", "request_timeout_ms", "10000"});
    for (const auto& source : sources) exposer->RegisterCollectable(source);
    return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(std::move(exposer), listen));
  } catch (const std::exception& error) {
    return MakeError(Reason::kInternal, "cannot serve metrics at " + listen +
                                            ": the address is taken or not of this machine (" +
                                            error.what() + ")");
  }
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<prometheus::Exposer> exposer,
                                 const std::string& listen)
    : exposer_(std::move(exposer)), port_(exposer_->GetListeningPorts().at(0)) {
  // A wildcard address leads to this machine as well. Without an address, stopping takes longer.
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(HostOf(listen).c_str(), std::to_string(port_).c_str(), &hints, &found) != 0) {
    return;
  }
  address_length_ = found->ai_addrlen;
  std::memcpy(&address_, found->ai_addr, address_length_);
  freeaddrinfo(found);
}

// The exposer's HTTP server learns that it should stop when a connection comes, or else at the end
// of a wait of two seconds. The order to stop is given within the exposer's destructor, so the
// connections must come meanwhile.
MetricsEndpoint::~MetricsEndpoint() {
  Mutex mu;
  CondVar changed;
  bool stopped = false;
  std::thread knocker([&] {
    for (;;) {
      Knock();
      MutexLock lock(mu);
      if (!stopped) changed.WaitUntil(mu, std::chrono::steady_clock::now() + kKnockInterval);
      if (stopped) return;
    }
  });
  exposer_.reset();
  {
    MutexLock lock(mu);
    stopped = true;
    changed.NotifyAll();
  }
  knocker.join();
}

void MetricsEndpoint::Knock() const {
  if (address_length_ == 0) return;
  const int connection = socket(address_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connection < 0) return;
  // Does not wait: the connection completes without us. Whether it got through shows in whether the
  // server stops.
  (void)connect(connection, reinterpret_cast<const sockaddr*>(&address_), address_length_);
  close(connection);
}

}  // namespace castor::server
