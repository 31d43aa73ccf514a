// The secret that a worker asks for.
#pragma once

#include <string>
#include <string_view>

namespace castor::load {

// The first line of a file. Throws std::runtime_error, which names the file, when it cannot be read
// or holds fewer than 16 characters.
std::string ReadToken(const std::string& path);

// 32 random bytes from the kernel, as hexadecimal digits. Throws std::runtime_error.
std::string MakeToken();

// In a time that depends on the lengths alone.
bool SameToken(std::string_view given, std::string_view expected);

// The value of metadata `authorization`, as the client sends it.
std::string Bearer(const std::string& token);

}  // namespace castor::load
