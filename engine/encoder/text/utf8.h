// UTF-8 validity, as protobuf and Rust define it: no overlong forms, no surrogates.
#pragma once

#include <string_view>

namespace castor::encoder {

bool IsValidUtf8(std::string_view text);

}  // namespace castor::encoder
