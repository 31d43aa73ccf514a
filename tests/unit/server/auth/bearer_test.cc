#include <gtest/gtest.h>

#include <string>

#include "server/auth/token.h"

namespace castor::server {
namespace {

TEST(BearerTest, TheTokenFollowsTheScheme) {
  EXPECT_EQ(BearerToken("Bearer abc"), "abc");
  EXPECT_EQ(BearerToken("bearer abc"), "abc");
  EXPECT_EQ(BearerToken("BEARER   a-b._~+/c=="), "a-b._~+/c==");
  EXPECT_EQ(BearerToken("Bearer " + std::string(kMaxTokenBytes, 'x')),
            std::string(kMaxTokenBytes, 'x'));
}

TEST(BearerTest, AnythingElseIsNone) {
  for (const char* value :
       {"", "Bearer", "Bearer ", "Bearer    ", "Bearerabc", "Basic abc", "Bear er abc", "abc",
        " Bearer abc", "Bearer abc ", "Bearer a b", "Bearer a,b", "Bearer \xc3\xa9", "Bearer\tabc",
        "Bearer a\x01", "BeARER\n abc", "\"earer abc"}) {
    EXPECT_FALSE(BearerToken(value).has_value()) << value;
  }
  EXPECT_FALSE(BearerToken("Bearer " + std::string(kMaxTokenBytes + 1, 'x')).has_value());
  EXPECT_FALSE(BearerToken(std::string_view("Bearer a\0b", 10)).has_value());
}

}  // namespace
}  // namespace castor::server
