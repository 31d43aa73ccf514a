// Nodes that a map has let go of, for its next entries. Where one thread inserts what another
// erases, memory that goes through the allocator costs several times what the map itself does.
//
// Only a few are kept, so that what was long does not keep its memory. The maps of one object are
// of one type, and guarded by one lock: as thread-safe as they are.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace castor {

// Of std::map or std::unordered_map.
template <typename Map>
class SpareNodes {
 public:
  static constexpr size_t kMost = 16;

  SpareNodes() { nodes_.reserve(kMost); }

  // Inserts what the map does not have yet.
  template <typename Key, typename Value>
  typename Map::iterator Insert(Map& map, const Key& key, Value&& value) {
    if (nodes_.empty()) return map.emplace(key, std::forward<Value>(value)).first;
    typename Map::node_type node = std::move(nodes_.back());
    nodes_.pop_back();
    node.key() = key;
    node.mapped() = std::forward<Value>(value);
    return map.insert(std::move(node)).position;
  }

  // Takes an entry out, and returns its value. Allocates nothing.
  typename Map::mapped_type Take(Map& map, typename Map::const_iterator at) {
    typename Map::node_type node = map.extract(at);
    typename Map::mapped_type value = std::move(node.mapped());
    if (nodes_.size() == kMost) return value;
    node.mapped() = {};
    nodes_.push_back(std::move(node));
    return value;
  }

  size_t size() const { return nodes_.size(); }

 private:
  std::vector<typename Map::node_type> nodes_;
};

}  // namespace castor
