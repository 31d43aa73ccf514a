// A server by name, and which of its addresses the next connection takes.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "client/load/base/clock.h"
#include "client/load/http2/address.h"
#include "client/load/http2/name_watch.h"

namespace castor::load {

// Not thread-safe.
class Endpoint {
 public:
  // `changed` is called, on another thread, when Refresh() has something to do. Throws ServerError
  // when there is no such host. An address that failed is left alone for `forget`, if others are
  // there.
  Endpoint(std::string target, Resolver resolve, std::function<void()> changed,
           std::chrono::milliseconds forget);

  const std::string& target() const { return target_; }
  // What HTTP/2 and the certificate call it.
  const std::string& authority() const { return authority_; }
  const std::string& certified() const { return certified_; }
  void SetServerName(const std::string& name) { authority_ = certified_ = name; }

  // How many servers are behind the name: one that has both IPv4 and IPv6 has both addresses.
  size_t servers() const;

  // The address with the fewest connections, of those that have not failed lately; of equal ones
  // they take turns. It has one more from then on, until Release.
  Address Pick(Clock::time_point now);
  void Release(const Address& address);

  // A connection failed: its address is the last to be picked for a while, and the name is resolved
  // anew.
  void Failed(const Address& address, Clock::time_point now);
  // A server asks to leave a connection: it may have successors by now.
  void Resolve() { names_.Ask(); }
  // Takes in what the name means now.
  void Refresh();

  // Whether a connection to this address should go elsewhere: its server is no longer among those
  // of the name, or has two more than another that has not failed lately.
  bool IsCrowded(const Address& address, Clock::time_point now) const;

 private:
  struct Place {
    Address address;
    size_t connections = 0;
    Clock::time_point failed{};  // long ago: never
    bool listed = true;          // the name still has it
  };
  Place* Find(const Address& address);
  bool Usable(const Place& place, Clock::time_point now) const;

  const std::string target_;
  std::string authority_, certified_;
  const std::chrono::milliseconds forget_;
  NameWatch names_;
  std::vector<Place> places_;  // those of the name, and those that still have connections
  size_t turn_ = 0;
};

}  // namespace castor::load
