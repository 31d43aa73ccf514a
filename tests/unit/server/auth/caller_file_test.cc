#include "server/auth/caller_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace castor::server {
namespace {

using ::testing::HasSubstr;

std::string Hex(char digit) { return std::string(64, digit); }

std::string Caller(const std::string& name, char digit, const std::string& more = "") {
  return "[[caller]]\nname = \"" + name + "\"\nsha256 = \"" + Hex(digit) + "\"\n" + more;
}

const Credential& Find(const CallerTable& callers, char digit) {
  return *callers.FindToken(*FromHex(Hex(digit)));
}

std::string Refusal(const std::string& text) {
  return std::string(ParseCallers(text).status().message());
}

TEST(CallerFileTest, ACallerHasANameAndMayCallEverything) {
  const auto callers = ParseCallers(Caller("search", 'a'));
  ASSERT_TRUE(callers.ok()) << callers.status();
  const Credential& search = Find(*callers, 'a');
  EXPECT_EQ(search.name, "search");
  EXPECT_TRUE(search.Allows("/castor.v1.AttentionService/Attend"));
  EXPECT_FALSE(search.metrics);
  EXPECT_FALSE(search.expired(std::chrono::system_clock::time_point::max()));
  EXPECT_EQ(callers->FindToken(*FromHex(Hex('b'))), nullptr);
  EXPECT_EQ(callers->FindName("search"), nullptr);
}

TEST(CallerFileTest, SeveralTokensOfANameAreValidAtOnce) {
  const auto callers = ParseCallers(Caller("search", 'a') + Caller("search", 'b') +
                                    "[[caller]]\nname = \"search\"\nsan = \"spiffe://x/y\"\n");
  ASSERT_TRUE(callers.ok()) << callers.status();
  EXPECT_EQ(Find(*callers, 'a').name, "search");
  EXPECT_EQ(Find(*callers, 'b').name, "search");
  ASSERT_NE(callers->FindName("spiffe://x/y"), nullptr);
  EXPECT_EQ(callers->size(), 3U);
}

TEST(CallerFileTest, AllowNamesServicesAndMethods) {
  const auto callers = ParseCallers(
      Caller("a", 'a',
             "allow = [\"castor.v1.EncoderService\", \"castor.v1.AttentionService/Attend\"]\n") +
      Caller("b", 'b', "allow = [\"metrics\"]\n") + Caller("c", 'c', "allow = []\n"));
  ASSERT_TRUE(callers.ok()) << callers.status();
  const Credential& a = Find(*callers, 'a');
  EXPECT_TRUE(a.Allows("/castor.v1.EncoderService/Encode"));
  EXPECT_TRUE(a.Allows("/castor.v1.AttentionService/Attend"));
  EXPECT_FALSE(a.Allows("/castor.v1.AttentionService/AttendStream"));
  EXPECT_FALSE(a.Allows("/castor.v1.EncoderServiceX/Encode"));
  EXPECT_FALSE(a.Allows("/castor.v1.ModelService/ListModels"));
  EXPECT_FALSE(a.metrics);
  EXPECT_TRUE(Find(*callers, 'b').metrics);
  EXPECT_FALSE(Find(*callers, 'b').Allows("/castor.v1.EncoderService/Encode"));
  EXPECT_FALSE(Find(*callers, 'c').Allows("/castor.v1.EncoderService/Encode"));
}

TEST(CallerFileTest, ExpiryIsADateOrATimeWithItsOffset) {
  const auto callers = ParseCallers(Caller("a", 'a', "expires = 2027-05-01\n") +
                                    Caller("b", 'b', "expires = 2027-05-01T02:00:00+02:00\n") +
                                    Caller("c", 'c', "expires = 2027-05-01T00:00:01Z\n"));
  ASSERT_TRUE(callers.ok()) << callers.status();
  const auto midnight = std::chrono::system_clock::from_time_t(1'809'129'600);
  EXPECT_EQ(Find(*callers, 'a').expires, midnight);
  EXPECT_EQ(Find(*callers, 'b').expires, midnight);
  EXPECT_EQ(Find(*callers, 'c').expires, midnight + std::chrono::seconds(1));
  EXPECT_TRUE(Find(*callers, 'a').expired(midnight));
  EXPECT_FALSE(Find(*callers, 'c').expired(midnight));
}

TEST(CallerFileTest, TenantsHaveTerms) {
  const auto callers = ParseCallers(Caller("a", 'a') + Caller("b", 'b') +
                                    "[tenant.a]\nweight = 2.5\nmax_queued_requests = 10\n"
                                    "max_queued_tokens = 20\nmax_queued_bytes = \"30MiB\"\n"
                                    "[tenant.b]\nweight = 3\nmax_queued_bytes = 4000000\n");
  ASSERT_TRUE(callers.ok()) << callers.status();
  EXPECT_EQ(callers->tenants().at("a"), (TenantTerms{.weight = 2.5,
                                                     .max_queued_requests = 10,
                                                     .max_queued_tokens = 20,
                                                     .max_queued_bytes = 30 << 20}));
  EXPECT_EQ(callers->tenants().at("b"), (TenantTerms{.weight = 3, .max_queued_bytes = 4000000}));
}

TEST(CallerFileTest, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_EQ(Refusal(""), "has no [[caller]]");
  EXPECT_EQ(Refusal("# all gone\n"), "has no [[caller]]");
  EXPECT_THAT(Refusal("[[caller]\n"), HasSubstr("line 1: "));
  EXPECT_THAT(Refusal("caller = 1\n"), HasSubstr("'caller' must be sections [[caller]]"));
  EXPECT_THAT(Refusal(Caller("a b", 'a')), HasSubstr("line 2: a caller needs a 'name'"));
  EXPECT_THAT(Refusal("[[caller]]\nsha256 = \"" + Hex('a') + "\"\n"), HasSubstr("'name'"));
  EXPECT_THAT(Refusal("[[caller]]\nname = \"a\"\n"), HasSubstr("either 'sha256' or 'san'"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "san = \"x\"\n")), HasSubstr("either 'sha256' or 'san'"));
  EXPECT_THAT(Refusal(Caller("a", 'g')), HasSubstr("line 3: 'sha256' must be 64"));
  EXPECT_THAT(Refusal(Caller("a", 'a') + Caller("b", 'a')), HasSubstr("token is given twice"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "colour = 1\n")), HasSubstr("line 4: unknown key 'colour'"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "allow = \"metrics\"\n")), HasSubstr("an array of strings"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "allow = [1]\n")), HasSubstr("no string"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "allow = [\"castor.v1.EncoderService/Encod\"]\n")),
              HasSubstr("line 4: 'allow' names 'castor.v1.EncoderService/Encod'"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "expires = 2027-05-01T00:00:00\n")), HasSubstr("offset"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "expires = \"never\"\n")), HasSubstr("'expires'"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "expires = 9999-01-01\n")), HasSubstr("1970 to 2200"));
  EXPECT_THAT(Refusal(Caller("a", 'a') + "[tenant.b]\nweight = 1\n"),
              HasSubstr("no caller has this name"));
  for (const char* term :
       {"weight = 0", "weight = 1001", "weight = nan", "weight = \"1\"", "max_queued_requests = -1",
        "max_queued_tokens = 1.5", "max_queued_bytes = \"many\"", "unknown = 1"}) {
    EXPECT_THAT(Refusal(Caller("a", 'a') + "[tenant.a]\n" + term + "\n"), HasSubstr("line 5: "))
        << term;
  }
  EXPECT_THAT(Refusal(Caller("a", 'a') + "[other]\n"), HasSubstr("unknown key 'other'"));
}

TEST(CallerFileTest, OnlyCommentsMayBeBeyondAscii) {
  EXPECT_TRUE(
      ParseCallers("\xef\xbb\xbf# Suchdienst f\xc3\xbcr B\xc3\xa4ume\n" + Caller("a", 'a')).ok());
  EXPECT_THAT(Refusal(Caller("a", 'a', "san\xc3\xa9 = 1\n")), HasSubstr("line 4: only comments"));
}

// What a message quotes must not help anybody who reads a log.
TEST(CallerFileTest, NoRefusalQuotesADigest) {
  const std::string text = Caller("a", 'a') + Caller("b", 'a') + Caller("c d", 'e');
  EXPECT_EQ(Refusal(text).find("aaaa"), std::string::npos);
}

}  // namespace
}  // namespace castor::server
