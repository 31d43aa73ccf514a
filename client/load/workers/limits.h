// What coordinator and workers agree on beyond the messages.
#pragma once

namespace castor::load {

inline constexpr int kMaxMessage = 8 << 20;  // bytes, in either direction
inline constexpr int kKeepaliveMs = 5'000;   // a silent connection is probed, and given this long

}  // namespace castor::load
