#include "client/load/output/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/load_runs.h"
#include "tests/support/seeded.h"

namespace castor::load {
namespace {

class TimelineTest : public Seeded, public ::testing::Test {};

TEST_F(TimelineTest, ThinningLosesNoRequestAndNoPeak) {
  const RunData run = SimulateRun({.seconds = static_cast<double>(Uniform(50, 120)),
                                   .classes = 3,
                                   .seed = static_cast<uint64_t>(seed_)});
  const auto most = static_cast<size_t>(UpTo(40));
  const Timeline timeline = MakeTimeline(run, most);
  ASSERT_LE(timeline.all.size(), most);
  ASSERT_EQ(timeline.classes.size(), 3u);

  double planned = 0, max = 0, begin = 0, most_in_flight = 0;
  for (const Moment& moment : timeline.all) {
    const double seconds = 2 * (moment.middle - begin);
    begin += seconds;
    planned += moment.planned * seconds;
    if (!std::isnan(moment.max)) max = std::max(max, moment.max);
    most_in_flight = std::max(most_in_flight, moment.in_flight);
  }
  EXPECT_DOUBLE_EQ(begin, static_cast<double>(run.seconds.size()));
  EXPECT_NEAR(planned, static_cast<double>(run.Total().planned()), 1e-6);
  EXPECT_EQ(max, static_cast<double>(run.Total().intended.max()));

  int64_t in_flight = 0;
  for (const auto& second : run.seconds) {
    in_flight =
        std::max(in_flight, second[0].in_flight + second[1].in_flight + second[2].in_flight);
  }
  EXPECT_EQ(most_in_flight, static_cast<double>(in_flight));
}

TEST_F(TimelineTest, SecondsWithoutAnswersAreGaps) {
  RunData run;
  run.classes = {"c"};
  run.seconds.assign(3, std::vector<Second>(1));
  run.seconds[1][0].intended.Record(5'000'000);
  run.seconds[2][0].outcomes[static_cast<int>(Outcome::kRefused)] = 4;
  const Timeline timeline = MakeTimeline(run, 100);
  ASSERT_EQ(timeline.classes[0].size(), 3u);
  EXPECT_TRUE(std::isnan(timeline.classes[0][0].p99));
  EXPECT_NEAR(timeline.classes[0][1].p99, 5e6, 5e3);
  EXPECT_TRUE(std::isnan(timeline.classes[0][2].p99));
  EXPECT_EQ(timeline.classes[0][2].rates[static_cast<int>(Outcome::kRefused)], 4);
}

}  // namespace
}  // namespace castor::load
