#include "server/auth/token.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace castor::server {
namespace {

// FIPS 180-2's examples.
TEST(TokenTest, TheDigestIsSha256) {
  EXPECT_EQ(ToHex(DigestOf("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(DigestOf("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(TokenTest, HexadecimalIsReadInEitherCase) {
  const Digest digest = DigestOf("abc");
  std::string text = ToHex(digest);
  EXPECT_EQ(FromHex(text), digest);
  for (char& c : text) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(FromHex(text), digest);
  EXPECT_FALSE(FromHex(text.substr(1)).has_value());
  EXPECT_FALSE(FromHex(text + "0").has_value());
  text[5] = 'g';
  EXPECT_FALSE(FromHex(text).has_value());
}

TEST(TokenTest, EqualComparesEveryByte) {
  const Digest digest = DigestOf("abc");
  for (size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= 1;
    EXPECT_FALSE(Equal(digest, other));
  }
  EXPECT_TRUE(Equal(digest, DigestOf("abc")));
}

TEST(TokenTest, DrawnTokensDifferAndFitIntoTheHeader) {
  std::set<std::string> tokens;
  for (int i = 0; i < 1000; ++i) {
    const std::string token = DrawToken();
    EXPECT_EQ(token.size(), 50U);
    EXPECT_EQ(BearerToken("Bearer " + token), token);
    tokens.insert(token);
  }
  EXPECT_EQ(tokens.size(), 1000U);
}

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
