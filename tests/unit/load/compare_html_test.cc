#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "client/load/output/html.h"
#include "tests/support/load_runs.h"
#include "tests/unit/load/markup_check.h"

namespace castor::load {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

CompareView SomeView() {
  using Row = CompareRow;
  CompareView view;
  view.name_a = "a <1>";
  view.name_b = "b & 2";
  view.headline = "1 of 3 figures is worse";
  view.worse = true;
  view.warnings = {"the <workloads> differ"};
  view.rows = {{"interactive", "p99", Row::Kind::kDuration, 40e6, 44e6, 0.1, 0.04, 0.17,
                Row::Judgement::kWorse, "regression"},
               {"interactive", "OK", Row::Kind::kRate, 100, 100, 0, -0.01, 0.01,
                Row::Judgement::kSame, "no change"},
               {"documents", "errors", Row::Kind::kShare, 0, 0.01, kNone, kNone, kNone,
                Row::Judgement::kBetter, "improvement"}};
  return view;
}

TEST(CompareHtmlTest, ShowsTheChangesAndBothRuns) {
  const std::string html =
      CompareHtml(SimulateRun({.seconds = 5}), SimulateRun({.seconds = 7, .seed = 2}), SomeView());
  const MarkupCheck check(html);
  ASSERT_EQ(check.fault(), "");
  for (const char* text :
       {"✗ 1 of 3 figures is worse", "the <workloads> differ", "+10.0%", "+4.0% to +17.0%",
        "40.0 ms", "b & 2", "✗ regression", "✓ improvement", "improvement"}) {
    EXPECT_THAT(check.text(), HasSubstr(text));
  }
  // Changes, and for both classes a curve and a timeline; each wide and narrow.
  EXPECT_EQ(std::ranges::count(check.Values("role"), "img"), (1 + 2 * 2) * 2);
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(CompareHtmlTest, ClassesThatOneRunLacksAreShownToo) {
  RunData a = SimulateRun({.seconds = 3}), b = SimulateRun({.seconds = 3});
  b.classes[1] = "others";
  const MarkupCheck check(CompareHtml(a, b, {}));
  ASSERT_EQ(check.fault(), "");
  EXPECT_THAT(check.text(), HasSubstr("documents"));
  EXPECT_THAT(check.text(), HasSubstr("others"));
  EXPECT_EQ(MarkupCheck(CompareHtml(RunData(), b, {})).fault(), "");
}

}  // namespace
}  // namespace castor::load
