#include "server/auth/caller_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace castor::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Hex(char digit) { return std::string(64, digit); }

// It may call everything for ever, unless `more` says otherwise.
std::string Caller(const std::string& name, char digit, const std::string& more = "") {
  std::string text =
      "[[caller]]\nname = \"" + name + "\"\nsha256 = \"" + Hex(digit) + "\"\n" + more;
  if (more.find("allow =") == std::string::npos) text += "allow = [\"*\"]\n";
  if (more.find("expires =") == std::string::npos) text += "expires = \"never\"\n";
  return text;
}

absl::StatusOr<CallerTable> Parse(const std::string& entries) {
  return ParseCallers(entries + "[end]\n");
}

const Credential& Find(const CallerTable& callers, char digit) {
  return *callers.FindToken(*FromHex(Hex(digit)));
}

std::string Refusal(const std::string& text) { return std::string(Parse(text).status().message()); }

// As it stands, pasted.
TEST(CallerFileTest, TheExampleOfTheReadmeIsAFileOfCallers) {
  std::ifstream readme(CASTOR_SOURCE_DIR "/server/auth/README.md");
  const std::string text{std::istreambuf_iterator<char>(readme), {}};
  const std::string fence = "```toml\n";
  const size_t begin = text.find(fence) + fence.size();
  const auto callers = ParseCallers(text.substr(begin, text.find("```", begin) - begin));
  ASSERT_TRUE(callers.ok()) << callers.status();
  EXPECT_EQ(callers->size(), 3U);
}

TEST(CallerFileTest, AllowNamesServicesAndMethods) {
  const auto callers = Parse(
      Caller("a", 'a',
             "allow = [\"castor.v1.EncoderService\", \"castor.v1.AttentionService/Attend\"]\n") +
      Caller("b", 'b', "allow = [\"metrics\"]\n") + Caller("c", 'c', "allow = []\n") +
      Caller("d", 'd', "allow = [\"metrics\", \"*\"]\n"));
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
  EXPECT_TRUE(Find(*callers, 'd').metrics);
  EXPECT_TRUE(Find(*callers, 'd').Allows("/castor.v1.EncoderService/Encode"));
}

// A file that says everything that a file can say.
std::string FullFile() {
  return "# callers\n" +
         Caller("a", 'a', "expires = 2027-05-01T00:00:00Z\nallow = [\"metrics\"]\n") + "\n" +
         Caller("b", 'b', "allow = [\"castor.v1.EncoderService\",\n  \"metrics\"]  # two\n") +
         "[[caller]]\nname = \"c\"\nallow = [\"*\"]\nexpires = 2027-05-01\nsan = "
         "\"c.example\"\n\n" +
         "[tenant.a]\nweight = 0.25\nmax_queued_requests = 10\nmax_queued_tokens = 1_000\n"
         "max_queued_bytes = \"30MiB\"\n[tenant.b]\nmax_queued_bytes = 4000000\n\n[end]";
}

TEST(CallerFileTest, CutAnywhereItIsRefusedWhole) {
  std::string windows = FullFile();
  for (size_t at = 0; (at = windows.find('\n', at)) != std::string::npos; at += 2) {
    windows.insert(at, 1, '\r');
  }
  for (const std::string& text : {FullFile(), windows}) {
    ASSERT_TRUE(ParseCallers(text).ok()) << ParseCallers(text).status();
    for (size_t cut = 0; cut < text.size(); ++cut) {
      const std::string left = text.substr(0, cut);
      EXPECT_FALSE(ParseCallers(left).ok()) << left;
      EXPECT_FALSE(ParseCallers(left + "\n").ok()) << left;
      // What a file system makes of a file that was being written when the power went.
      EXPECT_FALSE(ParseCallers(left + std::string(text.size() - cut, '\0')).ok()) << left;
    }
    for (const char* const rest : {"\n", "\r\n", "\n\n  \n"}) {
      EXPECT_TRUE(ParseCallers(text + rest).ok()) << rest;
    }
    for (const char* const rest : {"\n# more", "\nx = 1", "\n[end]", "\n[tenant.c]", "x"}) {
      EXPECT_FALSE(ParseCallers(text + rest).ok()) << rest;
    }
  }
}

// A line that is lost, as by a slip of an editor, is never a right that is gained.
TEST(CallerFileTest, WithoutAnyOneLineOfACallerItIsRefused) {
  const std::string text = FullFile();
  const size_t terms = text.find("[tenant");  // whose lines may be left out
  for (size_t begin = 0, end = 0; begin < terms; begin = end) {
    end = text.find('\n', begin) + 1;
    const std::string line = text.substr(begin, end - begin);
    if (line == "\n" || line.front() == '#') continue;
    EXPECT_FALSE(ParseCallers(text.substr(0, begin) + text.substr(end)).ok()) << line;
  }
}

TEST(CallerFileTest, AFileOfBeforeIsToldWhatToAdd) {
  const std::string old = "[[caller]]\nname = \"a\"\nsha256 = \"" + Hex('a') + "\"\n";
  EXPECT_THAT(std::string(ParseCallers(old).status().message()),
              AllOf(HasSubstr("last line is not [end]"), HasSubstr("'allow', [\"*\"]"),
                    HasSubstr("'expires', \"never\"")));
  EXPECT_EQ(Refusal(old),
            "line 1: caller 'a' needs 'allow': what it may call, or [\"*\"] for every method");
  EXPECT_EQ(Refusal(old + "allow = [\"*\"]\n"),
            "line 1: caller 'a' needs 'expires': a date, or \"never\"");
  EXPECT_EQ(Refusal(old + "allow = [\"*\"]\nexpires = \"never\"\n"), "");
}

TEST(CallerFileTest, AnEntryIsAddedBeforeTheEnd) {
  const auto first = AddCaller("", Caller("a", 'a'));
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = AddCaller("# ours\n" + *first + "\n", Caller("b", 'b'));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, "# ours\n" + Caller("a", 'a') + "\n" + Caller("b", 'b') + "\n[end]\n");
  EXPECT_THAT(std::string(AddCaller(*second, Caller("a", 'a')).status().message()),
              HasSubstr("token is given twice"));
  EXPECT_FALSE(AddCaller(Caller("a", 'a'), Caller("b", 'b')).ok());
}

TEST(CallerFileTest, ExpiryIsADateOrATimeWithItsOffset) {
  const auto callers = Parse(Caller("a", 'a', "expires = 2027-05-01\n") +
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
  const auto callers = Parse(Caller("a", 'a') + Caller("b", 'b') +
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
  EXPECT_THAT(Refusal(Caller("a", 'a') + "[end.x]\n"), HasSubstr("unknown key 'end'"));
  EXPECT_THAT(Refusal("caller = 1\n"), HasSubstr("'caller' must be sections [[caller]]"));
  EXPECT_THAT(Refusal(Caller("a b", 'a')), HasSubstr("line 2: a caller needs a 'name'"));
  EXPECT_THAT(Refusal("[[caller]]\nsha256 = \"" + Hex('a') + "\"\n"), HasSubstr("'name'"));
  EXPECT_THAT(Refusal("[[caller]]\nname = \"a\"\nallow = []\nexpires = \"never\"\n"),
              HasSubstr("either 'sha256' or 'san'"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "san = \"x\"\n")), HasSubstr("either 'sha256' or 'san'"));
  EXPECT_THAT(Refusal(Caller("a", 'g')), HasSubstr("line 3: 'sha256' must be 64"));
  EXPECT_THAT(Refusal(Caller("a", 'a') + Caller("b", 'a')), HasSubstr("token is given twice"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "colour = 1\n")), HasSubstr("line 4: unknown key 'colour'"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "allow = \"metrics\"\n")), HasSubstr("an array of strings"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "allow = [1]\n")), HasSubstr("only strings"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "allow = [\"castor.v1.EncoderService/Encod\"]\n")),
              HasSubstr("line 4: 'allow' names 'castor.v1.EncoderService/Encod'"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "expires = 2027-05-01T00:00:00\n")), HasSubstr("offset"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "expires = \"Never\"\n")), HasSubstr("'expires'"));
  EXPECT_THAT(Refusal(Caller("a", 'a', "expires = 9999-01-01\n")), HasSubstr("1970 to 2200"));
  EXPECT_THAT(Refusal(Caller("a", 'a') + "[tenant.b]\nweight = 1\n"),
              HasSubstr("no caller has this name"));
  for (const char* term :
       {"weight = 0", "weight = 1001", "weight = nan", "weight = \"1\"", "max_queued_requests = -1",
        "max_queued_tokens = 1.5", "max_queued_bytes = \"many\"", "unknown = 1"}) {
    EXPECT_THAT(Refusal(Caller("a", 'a') + "[tenant.a]\n" + term + "\n"), HasSubstr("line 7: "))
        << term;
  }
  // It must not read as "no limit".
  for (const char* term : {"max_queued_requests = 0", "max_queued_tokens = 0",
                           "max_queued_bytes = 0", "max_queued_bytes = \"0\""}) {
    EXPECT_THAT(Refusal(Caller("a", 'a') + "[tenant.a]\n" + term + "\n"),
                AllOf(HasSubstr("line 7: "), HasSubstr("without it there is no limit")))
        << term;
  }
  EXPECT_THAT(Refusal(Caller("a", 'a') + "[other]\n"), HasSubstr("unknown key 'other'"));
}

TEST(CallerFileTest, OnlyCommentsMayBeBeyondAscii) {
  EXPECT_TRUE(Parse("\xef\xbb\xbf# Suchdienst f\xc3\xbcr B\xc3\xa4ume\n" + Caller("a", 'a')).ok());
  EXPECT_THAT(Refusal(Caller("a", 'a', "san\xc3\xa9 = 1\n")), HasSubstr("line 4: only comments"));
}

// What a message quotes must not help anybody who reads a log.
TEST(CallerFileTest, NoRefusalQuotesADigest) {
  const std::string text = Caller("a", 'a') + Caller("b", 'a') + Caller("c d", 'e');
  EXPECT_EQ(Refusal(text).find("aaaa"), std::string::npos);
}

// Exactly these characters, whatever the locale.
TEST(TenantTest, NamesAreShortAndOfASmallAlphabet) {
  EXPECT_FALSE(IsTenant(""));
  EXPECT_TRUE(IsTenant(std::string(64, 'x')));
  EXPECT_FALSE(IsTenant(std::string(65, 'x')));
  const std::string allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    EXPECT_EQ(IsTenant(std::string(1, c)), allowed.find(c) != std::string::npos) << byte;
  }
}

}  // namespace
}  // namespace castor::server
