// What both sides of a connection share.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <string_view>

namespace castor::load {

// Of what may be on its way to this side: so wide that no peer ever waits for it.
inline constexpr int32_t kWideWindow = 1 << 30;
inline constexpr int32_t kLargeFrame = 1 << 20;

// `flags` say which of the two libnghttp2 need not copy: they stay until the frame is sent.
inline nghttp2_nv Header(std::string_view name, std::string_view value, uint8_t flags) {
  // libnghttp2 takes pointers that are not const, and does not write there.
  return {.name = reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          .value = reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())),
          .namelen = name.size(),
          .valuelen = value.size(),
          .flags = flags};
}

}  // namespace castor::load
