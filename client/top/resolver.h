// Looks up the addresses of a name without blocking.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace castor::top {

// One lookup at a time. Not thread-safe.
class Resolver {
 public:
  Resolver();
  ~Resolver();
  Resolver(Resolver&&) noexcept;
  Resolver& operator=(Resolver&&) noexcept;

  // REQUIRES: !pending().
  void Start(const std::string& host, const std::string& port);

  bool pending() const { return lookup_ != nullptr; }

  // The result, once: HOST:PORT of several servers behind one name, or nothing where it has a
  // single one (an address of each family leads to the same). nullopt: not yet, or not asked.
  std::optional<absl::StatusOr<std::vector<std::string>>> Poll();

 private:
  struct Lookup;
  std::unique_ptr<Lookup> lookup_;
};

// Whether it is an IPv4 or IPv6 address, which needs no lookup.
bool IsNumericHost(const std::string& host);

}  // namespace castor::top
