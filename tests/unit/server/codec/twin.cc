#include "tests/unit/server/codec/twin.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace castor::server::twin {

bool Rewriter::Holds(const SliceView& slices, ByteSpan piece) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(piece.data());
  const std::less_equal<const uint8_t*> before;
  return std::ranges::any_of(slices.slices(), [&](const grpc::Slice& slice) {
    return before(slice.begin(), begin) && before(begin + piece.size(), slice.end());
  });
}

DecodeScope Regions() {
  static constexpr char kTenant[] = "twin";
  static const SharedMemory* const regions = [] {
    auto* made = new SharedMemory(2);
    for (RegionInfo region : {RegionInfo{"r", "/no-file", 100, 4096},
                              RegionInfo{"huge", "/no-file", 7, INT64_MAX - 7}}) {
      made->Add(kTenant, std::make_shared<const SharedRegion>(std::move(region), -1)).IgnoreError();
    }
    return made;
  }();
  static DecodeBudget budget(EngineOptions(), INT64_MAX);
  return {{*regions, kTenant}, budget};
}

grpc::ByteBuffer InSlices(std::string_view bytes, std::span<const size_t> sizes) {
  std::vector<grpc::Slice> slices;
  for (size_t size : sizes) {
    const std::string_view piece = bytes.substr(0, size);
    slices.emplace_back(piece.data(), piece.size());
    bytes.remove_prefix(piece.size());
  }
  if (!bytes.empty()) slices.emplace_back(bytes.data(), bytes.size());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace castor::server::twin
