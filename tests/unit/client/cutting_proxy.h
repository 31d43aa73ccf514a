// A TCP proxy on 127.0.0.1 that breaks connections when it is told to: what a network, a crash or a
// restart does to a client. Methods may be called by any thread.
#pragma once

#include <poll.h>

#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace castor {

class CuttingProxy {
 public:
  explicit CuttingProxy(int port);  // of the server behind it, on 127.0.0.1
  ~CuttingProxy();
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;

  const std::string& address() const { return address_; }  // "127.0.0.1:50123"

  // The next so many connections are closed before a byte has passed.
  void RefuseNext(int connections);

  // Breaks all connections, both ways, before it returns: nothing passes them from then on.
  void Cut();

 private:
  struct Pair {
    int client, server;
  };

  void Run();
  void Accept();
  // Passes on what `from` has; false at its end.
  static bool Pass(int from, int to);

  const int port_;
  std::string address_;
  int listener_ = -1;
  std::mutex mu_;
  std::vector<Pair> pairs_;  // closed by thread_ alone
  int refusals_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace castor
