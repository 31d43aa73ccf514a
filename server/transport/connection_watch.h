// The thread that watches connections. It tells Connections when one ends, and has it close those
// that never complete what they send, or have had time to take what was sent.
//
// It has a thread of its own because a thread that hands a connection to gRPC, or cancels a call,
// may have to do gRPC's work for a while, even a flood's.
#pragma once

#include <atomic>
#include <thread>

#include "server/transport/connections.h"

namespace castor::server {

class ConnectionWatch {
 public:
  // `connections` must outlive the object. Check ok() before anything else: there may be no
  // descriptor left.
  explicit ConnectionWatch(Connections& connections);
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  bool ok() const { return epoll_ >= 0 && wake_ >= 0; }

  // Watches what Connections::Add returned. Any thread.
  void Add(const Connections::Admitted& admitted);

 private:
  void Run();
  void Wake();

  Connections& connections_;
  const int epoll_;
  const int wake_;  // eventfd
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

}  // namespace castor::server
