#include <gtest/gtest.h>

#include <string>

#include "server/auth/caller_table.h"

namespace castor::server {
namespace {

TEST(TenantTest, NamesAreShortAndOfASmallAlphabet) {
  for (const char* name : {"a", "Z", "0", ".", "_", "-", "team-1.eu_west", "..", "other"}) {
    EXPECT_TRUE(IsTenant(name)) << name;
  }
  EXPECT_TRUE(IsTenant(std::string(64, 'x')));
  EXPECT_FALSE(IsTenant(std::string(65, 'x')));
  EXPECT_FALSE(IsTenant(""));
  for (const char* name :
       {" ", "a b", "a\n", "a/b", "a=1", "a,b", "a\"", "{a}", "\xc3\xa9", "a:", "@", "[", "`"}) {
    EXPECT_FALSE(IsTenant(name)) << name;
  }
  EXPECT_FALSE(IsTenant(std::string_view("a\0b", 3)));
}

// Exactly these characters, whatever the locale.
TEST(TenantTest, EveryByteIsAllowedOrNot) {
  const std::string allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    EXPECT_EQ(IsTenant(std::string(1, c)), allowed.find(c) != std::string::npos) << byte;
  }
}

}  // namespace
}  // namespace castor::server
