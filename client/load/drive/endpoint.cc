#include "client/load/drive/endpoint.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace castor::load {

Endpoint::Endpoint(std::string target, Resolver resolve, std::function<void()> changed,
                   std::chrono::milliseconds forget)
    : target_(std::move(target)),
      authority_(AuthorityOf(target_)),
      certified_(HostOf(target_)),
      forget_(forget),
      names_(target_, std::move(resolve), std::move(changed)) {
  Refresh();
}

size_t Endpoint::servers() const {
  const auto of_family = [this](bool inet6) {
    return std::count_if(places_.begin(), places_.end(), [inet6](const Place& place) {
      return place.listed && (place.address.bytes.ss_family == AF_INET6) == inet6;
    });
  };
  return static_cast<size_t>(std::max(of_family(false), of_family(true)));
}

Endpoint::Place* Endpoint::Find(const Address& address) {
  const auto found = std::find_if(places_.begin(), places_.end(),
                                  [&](const Place& place) { return place.address == address; });
  return found == places_.end() ? nullptr : &*found;
}

bool Endpoint::Usable(const Place& place, Clock::time_point now) const {
  return place.listed && (place.failed == Clock::time_point() || now - place.failed >= forget_);
}

Address Endpoint::Pick(Clock::time_point now) {
  // Places that are usable come first, then those with fewer connections, then those whose turn it
  // is. At least one is listed.
  const size_t count = places_.size();
  Place* best = nullptr;
  for (size_t i = 0; i < count; ++i) {
    Place& place = places_[(turn_ + i) % count];
    if (!place.listed) continue;
    if (best == nullptr || (Usable(place, now) && !Usable(*best, now)) ||
        (Usable(place, now) == Usable(*best, now) && place.connections < best->connections)) {
      best = &place;
    }
  }
  turn_ = static_cast<size_t>(best - places_.data()) + 1;
  ++best->connections;
  return best->address;
}

void Endpoint::Release(const Address& address) {
  Place* place = Find(address);
  if (place == nullptr) return;
  --place->connections;
  std::erase_if(places_, [](const Place& each) { return !each.listed && each.connections == 0; });
}

void Endpoint::Failed(const Address& address, Clock::time_point now) {
  if (Place* place = Find(address); place != nullptr) place->failed = now;
  names_.Ask();
}

void Endpoint::Refresh() {
  const std::optional<std::vector<Address>> now = names_.Take();
  if (!now.has_value()) return;
  for (Place& place : places_) place.listed = false;
  for (const Address& address : *now) {
    if (Place* place = Find(address); place != nullptr) {
      place->listed = true;
    } else {
      places_.push_back({.address = address});
    }
  }
  std::erase_if(places_, [](const Place& each) { return !each.listed && each.connections == 0; });
}

bool Endpoint::IsCrowded(const Address& address, Clock::time_point now) const {
  const Place* own = nullptr;
  const Place* least = nullptr;
  for (const Place& place : places_) {
    if (place.address == address) own = &place;
    if (Usable(place, now) && (least == nullptr || place.connections < least->connections)) {
      least = &place;
    }
  }
  if (own == nullptr || least == nullptr || least == own) return false;
  return !own->listed || (servers() > 1 && own->connections >= least->connections + 2);
}

}  // namespace castor::load
