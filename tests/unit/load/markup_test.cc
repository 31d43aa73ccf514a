#include "client/load/output/markup.h"

#include <gtest/gtest.h>

#include <string>

#include "client/load/output/text.h"
#include "tests/support/seeded.h"
#include "tests/unit/load/markup_check.h"

namespace castor::load {
namespace {

TEST(MarkupTest, ClosesWhatItOpensAndEscapesTheRest) {
  Markup markup;
  markup.Open("p", {{"class", "a \"b\" <c>"}, {"title", ""}}).Text("1 < 2 & 'x'").Close();
  markup.Empty("br").Put("b", "bold");
  EXPECT_EQ(
      markup.whole(),
      "<p class=\"a &quot;b&quot; &lt;c&gt;\">1 &lt; 2 &amp; &#39;x&#39;</p><br/><b>bold</b>");
}

TEST(MarkupTest, TheCheckOfTheseTestsFindsFaults) {
  const char* const faults[] = {"<p>",
                                "<p></b>",
                                "</p>",
                                "a & b",
                                "<p class=a></p>",
                                "<p class=\"a\" class=\"b\"></p>",
                                "<p id=\"a\"></p><p id=\"a\"></p>",
                                "<p aria-labelledby=\"a\"></p>",
                                "a < b",
                                "<p title=\"<\"></p>",
                                "&nbsp;",
                                "<script>"};
  for (const char* const fault : faults) EXPECT_NE(MarkupCheck(fault).fault(), "") << fault;
  EXPECT_EQ(MarkupCheck("<p class=\"a\">x &amp; y<br/></p><style>a > b {}</style>").fault(), "");
}

class RandomMarkupTest : public Seeded, public ::testing::Test {};

TEST_F(RandomMarkupTest, WhateverTextIsPutInComesOutAndNothingElse) {
  constexpr std::string_view kSpecial = "<>&\"'/=-! a;";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = UpTo(30); i > 0; --i) {
      text += Uniform(0, 3) == 0 ? static_cast<char>(Uniform(0, 255))
                                 : kSpecial[static_cast<size_t>(Uniform(0, 11))];
    }
    Markup markup;
    markup.Open("p", {{"title", text}}).Text(text).Close();
    const MarkupCheck check(markup.whole());
    ASSERT_EQ(check.fault(), "");
    EXPECT_EQ(check.text(), CleanText(text));
    ASSERT_EQ(check.Values("title").size(), 1u);
    EXPECT_EQ(check.Values("title")[0], CleanText(text));
  }
}

}  // namespace
}  // namespace castor::load
