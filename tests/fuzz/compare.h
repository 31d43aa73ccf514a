// Shared by the codec's fuzz targets. An input says how to cut a message into slices, then holds
// the message. The low four bits of the first byte are the number of cuts; each of the next bytes
// is the size of a slice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "tests/unit/server/codec/twin.h"

namespace castor::server::twin {

// Ends the process when the decoder and its twin differ.
inline void CompareInput(std::span<const uint8_t> input,
                         Comparison (*compare)(std::string_view, std::span<const size_t>)) {
  if (input.empty()) return;
  const size_t cuts = std::min<size_t>(input[0] & 15, input.size() - 1);
  const auto sizes = input.subspan(1, cuts);
  const auto message = input.subspan(1 + cuts);
  const std::vector<size_t> slice_sizes(sizes.begin(), sizes.end());
  const Comparison comparison =
      compare({reinterpret_cast<const char*>(message.data()), message.size()}, slice_sizes);
  if (comparison.difference.empty()) return;
  std::fprintf(stderr, "%s\n", comparison.difference.c_str());
  std::abort();
}

}  // namespace castor::server::twin
