// A TCP proxy on 127.0.0.1 that breaks connections on request, as a network fault, a crash or a
// restart would. Methods may be called from any thread.
#pragma once

#include <poll.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace castor {

class CuttingProxy {
 public:
  explicit CuttingProxy(int port);  // the server's port on 127.0.0.1
  ~CuttingProxy();
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;

  const std::string& address() const { return address_; }  // "127.0.0.1:50123"

  // Closes the next `connections` connections before any byte has passed.
  void RefuseNext(int connections);

  // Breaks all connections in both directions before it returns: no bytes pass after that.
  void Cut();

 private:
  struct Pair {
    int client, server;
  };

  void Run();
  void Accept();
  // Forwards the available data of `from`; false at its end.
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
