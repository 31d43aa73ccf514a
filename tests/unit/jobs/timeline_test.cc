// Forecasts of what waits.
#include "engine/jobs/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/support/tenant_weights.h"

namespace castor {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

// What a request asks for, by which a test names only what matters.
struct Wish {
  std::string tenant = "a";
  double us = 100;  // its own
  std::string key = "key";
  double batch_us = 0;
  Priority priority = Priority::kNormal;
  double deadline_us = 0;  // from now; 0: none
};

class TimelineTest : public ::testing::Test {
 protected:
  TimePoint DeadlineOf(const Wish& wish) const {
    return wish.deadline_us == 0 ? TimePoint::max()
                                 : now_ + microseconds(static_cast<int64_t>(wish.deadline_us));
  }

  // Refers to `wish`.
  Timeline::Candidate CandidateOf(const Wish& wish) {
    std::optional<TimePoint> deadline;
    if (wish.deadline_us != 0) deadline = DeadlineOf(wish);
    return {.tenant = wish.tenant,
            .batch_key = wish.key,
            .rank = RankOf(wish.priority, deadline, now_, ++sequence_),
            .priority = wish.priority,
            .time = {.batch_us = wish.batch_us, .own_us = wish.us},
            .deadline = DeadlineOf(wish)};
  }

  Timeline::Place Insert(const Wish& wish) { return timeline_.Insert(CandidateOf(wish), now_); }
  Timeline::Forecast Ask(const Wish& wish, double device_us = 0, double margin = 1) {
    return timeline_.Ask(CandidateOf(wish), now_, device_us, margin);
  }
  // Of those that come: over a long wait they come regularly.
  double MeanAhead(const std::string& tenant, Priority priority) {
    return timeline_.ShareAhead(tenant, priority, 1e30, now_);
  }
  bool MakesLate(const Wish& wish, double device_us = 0, double margin = 1) {
    return Ask(wish, device_us, margin).makes_late;
  }

  const std::shared_ptr<TenantTable> terms_ = Weighted({{"heavy", 4}});
  Timeline timeline_{terms_};
  TimePoint now_ = TimePoint(seconds(1000));
  Ticket sequence_ = 0;
};

TEST_F(TimelineTest, NobodyIsAheadOfTheFirst) {
  const Timeline::Forecast forecast = Ask({.us = 70, .batch_us = 5}, 1e6);
  EXPECT_EQ(forecast.ahead_us, 0);
  EXPECT_EQ(forecast.others_us, 0);
  EXPECT_EQ(forecast.own_us, 75);
  EXPECT_EQ(forecast.passed_us, 0);
  EXPECT_FALSE(forecast.makes_late);
  EXPECT_TRUE(timeline_.empty());
}

TEST_F(TimelineTest, ThoseOfItsTenantAreAheadByRank) {
  Insert({.us = 100, .priority = Priority::kHigh});
  Insert({.us = 20, .deadline_us = 1000});
  Insert({.us = 3});
  Insert({.us = 40, .priority = Priority::kLow});
  EXPECT_EQ(Ask({.priority = Priority::kLow}).ahead_us, 163);
  EXPECT_EQ(Ask({}).ahead_us, 123);
  EXPECT_EQ(Ask({.deadline_us = 1001}).ahead_us, 120);
  EXPECT_EQ(Ask({.deadline_us = 999}).ahead_us, 100);
  EXPECT_EQ(Ask({.priority = Priority::kHigh, .deadline_us = 999}).ahead_us, 0);
  EXPECT_EQ(Ask({}).others_us, 0);
  EXPECT_EQ(timeline_.size(), 4u);
  EXPECT_EQ(timeline_.total_us(), 163);
}

TEST_F(TimelineTest, OthersAreServedForAsLongAsItsOwn) {
  Insert({.us = 100});
  Insert({.tenant = "b", .us = 350});
  EXPECT_EQ(Ask({.us = 90}).ahead_us, 100);
  EXPECT_EQ(Ask({.us = 90}).others_us, 190) << "while 190 of its own are";
  EXPECT_EQ(Ask({.us = 300}).others_us, 350) << "no more than there is";
  Insert({.tenant = "c", .us = 350});
  EXPECT_EQ(Ask({.us = 90}).others_us, 380) << "each of them";
  // One that waits for nothing is before nobody and behind nobody.
  EXPECT_EQ(Ask({.tenant = "new", .us = 90}).ahead_us, 0);
  EXPECT_EQ(Ask({.tenant = "new", .us = 90}).others_us, 270);
}

TEST_F(TimelineTest, OthersAreServedByWeight) {
  Insert({.tenant = "heavy", .us = 390});
  Insert({.tenant = "b", .us = 390});
  EXPECT_EQ(Ask({.tenant = "b", .us = 100, .priority = Priority::kHigh}).others_us, 390);
  EXPECT_EQ(Ask({.tenant = "b", .us = 98, .priority = Priority::kHigh}).ahead_us, 0);
  EXPECT_EQ(Ask({.tenant = "b", .us = 98, .priority = Priority::kHigh}).others_us, 390)
      << "four times as much, of what there is";
  EXPECT_EQ(Ask({.tenant = "heavy", .us = 100, .priority = Priority::kHigh}).others_us, 25);
  EXPECT_EQ(Ask({.tenant = "new", .us = 98}).others_us, 490);
}

TEST_F(TimelineTest, NewWeightsApplyToWhatWaits) {
  Insert({.tenant = "heavy", .us = 400});
  Insert({.tenant = "b", .us = 110});
  EXPECT_EQ(Ask({.tenant = "heavy", .us = 100}).others_us, 110);
  terms_->Set(Weights({{"heavy", 10}, {"b", 0.5}}));
  timeline_.ReadWeights();
  EXPECT_EQ(Ask({.tenant = "heavy", .us = 100}).others_us, 25) << "a twentieth of 500";
  EXPECT_EQ(Ask({.tenant = "c", .us = 99}).others_us, 510) << "all there is";
  terms_->Set({});
  timeline_.ReadWeights();
  EXPECT_EQ(Ask({.tenant = "c", .us = 99}).others_us, 198);
}

TEST_F(TimelineTest, ATenantsPartIsServedWithThatOfOthersMeanwhile) {
  EXPECT_EQ(timeline_.UntilServed("heavy", 1), 0);
  Insert({.tenant = "heavy", .us = 400});
  EXPECT_EQ(timeline_.UntilServed("heavy", 0.5), 200);
  Insert({.tenant = "b", .us = 70});
  EXPECT_EQ(timeline_.UntilServed("heavy", 0.5), 250);
  EXPECT_EQ(timeline_.UntilServed("heavy", 1), 470) << "no more than there is";
  EXPECT_EQ(timeline_.UntilServed("b", 1), 350);
  EXPECT_EQ(timeline_.UntilServed("c", 1), 0);
}

TEST_F(TimelineTest, TheFirstOfAKeyPaysForTheBatch) {
  EXPECT_EQ(Ask({.us = 70, .key = "x", .batch_us = 30}).own_us, 100);
  const Timeline::Place first = Insert({.us = 70, .key = "x", .batch_us = 30});
  EXPECT_EQ(timeline_.total_us(), 100);
  EXPECT_EQ(Ask({.tenant = "b", .us = 70, .key = "x", .batch_us = 30}).own_us, 100)
      << "another tenant's is no company";
  EXPECT_EQ(Ask({.us = 70, .key = "y", .batch_us = 30}).own_us, 100);
  const Timeline::Place second = Insert({.us = 70, .key = "x", .batch_us = 30});
  EXPECT_EQ(timeline_.total_us(), 170);
  timeline_.Remove(first);
  EXPECT_EQ(timeline_.total_us(), 70);
  EXPECT_EQ(Ask({.us = 70, .key = "x", .batch_us = 30}).own_us, 70) << "one is left";
  timeline_.Remove(second);
  EXPECT_EQ(Ask({.us = 70, .key = "x", .batch_us = 30}).own_us, 100);
}

TEST_F(TimelineTest, MuchLongerOnesArePassed) {
  Insert({.us = 900});
  EXPECT_EQ(Ask({.us = 200}).passed_us, 0);
  EXPECT_EQ(Ask({.us = 200}).ahead_us, 900);
  EXPECT_EQ(Ask({.us = 100}).passed_us, 900);
  EXPECT_EQ(Ask({.us = 100}).ahead_us, 0);
  Insert({.us = 130});
  EXPECT_EQ(Ask({.us = 100}).ahead_us, 130) << "the short one only";
  // Another tenant's as well.
  Insert({.tenant = "b", .us = 900});
  EXPECT_EQ(Ask({.us = 100}).others_us, 0);
  EXPECT_EQ(Ask({.us = 250}).others_us, 900);
  // As long as it takes with its batch.
  EXPECT_EQ(Ask({.us = 100, .key = "y", .batch_us = 200}).passed_us, 0);
}

// Lengths are told apart by powers of two: some of four to eight times its own are not passed.
TEST_F(TimelineTest, ThoseBehindAreNotAheadHoweverLong) {
  for (const double us : {10.0, 300.0, 450.0, 500.0, 900.0, 100'000.0}) {
    const Timeline::Place place = Insert({.us = us});
    EXPECT_EQ(Ask({.us = 100, .priority = Priority::kHigh}).ahead_us, 0) << us;
    timeline_.Remove(place);
  }
}

TEST_F(TimelineTest, SomeTimesAreOdd) {
  Insert({.us = 0});
  Insert({.us = 1e-9});
  Insert({.us = 1e300});
  EXPECT_EQ(Ask({.us = 0}).ahead_us, 1e-9);
  EXPECT_EQ(Ask({.us = 0}).passed_us, 1e300);
  EXPECT_EQ(Ask({.us = 1e299}).ahead_us, 1e300);
}

TEST_F(TimelineTest, AdjustTimeReplacesATime) {
  const Timeline::Place first = Insert({.us = 100, .batch_us = 10});
  const Timeline::Place second = Insert({.us = 100, .batch_us = 10});
  EXPECT_EQ(timeline_.total_us(), 210);
  timeline_.AdjustTime(first, {.batch_us = 20, .own_us = 1000});
  EXPECT_EQ(timeline_.total_us(), 1120) << "it still pays for the batch";
  timeline_.AdjustTime(second, {.batch_us = 20, .own_us = 7});
  EXPECT_EQ(timeline_.total_us(), 1027) << "and this one does not";
  EXPECT_EQ(Ask({.us = 100}).ahead_us, 7) << "the first is one to pass now";
  timeline_.Remove(first);
  EXPECT_EQ(timeline_.total_us(), 7);
  timeline_.Remove(second);
  EXPECT_EQ(timeline_.total_us(), 0);
  EXPECT_TRUE(timeline_.empty());
}

TEST_F(TimelineTest, OneMakesOthersLateIfTheyWouldBeInTimeWithoutIt) {
  Insert({.us = 100, .deadline_us = 1000});
  EXPECT_FALSE(MakesLate({.us = 900, .deadline_us = 900}));
  EXPECT_TRUE(MakesLate({.us = 901, .deadline_us = 900}));
  EXPECT_FALSE(MakesLate({.us = 5000})) << "behind it";
  EXPECT_TRUE(MakesLate({.us = 500, .deadline_us = 900}, 450)) << "what runs on the device first";
  EXPECT_TRUE(MakesLate({.us = 450, .deadline_us = 900}, 0, 2)) << "half as fast as predicted";
  EXPECT_FALSE(MakesLate({.us = 400, .deadline_us = 900}, 0, 2));
  EXPECT_FALSE(MakesLate({.us = 5000, .deadline_us = 900}, 950)) << "late anyway";
}

TEST_F(TimelineTest, AnyBehindItMayBeMadeLate) {
  Insert({.us = 100, .deadline_us = 5000});
  Insert({.us = 100, .deadline_us = 6000});
  Insert({.us = 3000, .deadline_us = 6500});
  EXPECT_FALSE(MakesLate({.us = 3300, .deadline_us = 4000}));
  EXPECT_TRUE(MakesLate({.us = 3301, .deadline_us = 4000})) << "the last, which takes long";
  EXPECT_FALSE(MakesLate({.us = 3301, .deadline_us = 6501})) << "not the last any more";
}

TEST_F(TimelineTest, ALowerPriorityGivesWay) {
  Insert({.us = 100, .priority = Priority::kLow, .deadline_us = 1000});
  EXPECT_FALSE(MakesLate({.us = 2000, .priority = Priority::kNormal}));
  EXPECT_FALSE(MakesLate({.us = 2000, .priority = Priority::kHigh}));
  EXPECT_TRUE(MakesLate({.us = 2000, .priority = Priority::kLow, .deadline_us = 900}));
  // A higher one that has aged less is behind it, and does not.
  Insert({.us = 100, .priority = Priority::kHigh, .deadline_us = 1000});
  EXPECT_TRUE(MakesLate({.us = 2000, .priority = Priority::kHigh, .deadline_us = 900}));
  now_ -= seconds(30);
  EXPECT_TRUE(MakesLate({.us = 40e6, .priority = Priority::kNormal}));
}

TEST_F(TimelineTest, OtherTenantsAreServedMeanwhileAndNotMadeLate) {
  Insert({.us = 100, .deadline_us = 1000});
  Insert({.tenant = "b", .us = 300, .deadline_us = 310});
  EXPECT_TRUE(MakesLate({.us = 601, .deadline_us = 900})) << "300 of the other";
  EXPECT_FALSE(MakesLate({.us = 600, .deadline_us = 900}));
  EXPECT_FALSE(MakesLate({.tenant = "c", .us = 100, .deadline_us = 300})) << "that is fairness";
}

TEST_F(TimelineTest, ThoseThatComeAreServedByTenant) {
  EXPECT_EQ(MeanAhead("a", Priority::kNormal), 0);
  timeline_.Remove(Insert({.us = 1e6}));
  EXPECT_NEAR(MeanAhead("b", Priority::kNormal), 0.5, 1e-9);
  EXPECT_NEAR(MeanAhead("b", Priority::kHigh), 0.5, 1e-9) << "taking turns";
  EXPECT_NEAR(MeanAhead("a", Priority::kNormal), 0, 1e-9) << "it is behind";
  EXPECT_NEAR(MeanAhead("a", Priority::kHigh), 0, 1e-9);
  EXPECT_NEAR(MeanAhead("a", Priority::kLow), 0.5, 1e-9) << "it is ahead";
  now_ += seconds(2);
  EXPECT_NEAR(MeanAhead("b", Priority::kNormal), 0.5 / std::exp(1), 1e-9);
  now_ += seconds(4);
  EXPECT_NEAR(MeanAhead("b", Priority::kNormal), 0.1 / std::exp(0.6), 1e-9) << "longer ago";
  now_ += seconds(300);
  EXPECT_NEAR(MeanAhead("b", Priority::kNormal), 0, 1e-9);
}

TEST_F(TimelineTest, TheShareOfThoseThatComeIsTheLargerOfBothAndHasACap) {
  Insert({.us = 0.4e6});                               // 0.2
  Insert({.us = 0.6e6, .priority = Priority::kHigh});  // 0.3
  Insert({.tenant = "b", .us = 0.2e6});                // 0.1
  EXPECT_NEAR(MeanAhead("a", Priority::kNormal), 0.3, 1e-9);
  EXPECT_NEAR(MeanAhead("b", Priority::kNormal), 0.5, 1e-9);
  EXPECT_NEAR(MeanAhead("a", Priority::kLow), 0.6, 1e-9);
  Insert({.us = 100e6});
  EXPECT_EQ(MeanAhead("b", Priority::kNormal), 0.75);
  EXPECT_EQ(MeanAhead("a", Priority::kLow), 0.75);
}

TEST_F(TimelineTest, ThoseThatComeIrregularlyMayTakeMore) {
  for (int i = 0; i < 1000; ++i) timeline_.Remove(Insert({.tenant = "many", .us = 400}));
  timeline_.Remove(Insert({.tenant = "one", .us = 0.4e6}));
  const auto share = [&](const std::string& tenant, double ahead_us) {
    return timeline_.ShareAhead(tenant, Priority::kNormal, ahead_us, now_);
  };
  EXPECT_NEAR(MeanAhead("one", Priority::kNormal), 0.2, 1e-9);
  EXPECT_NEAR(MeanAhead("many", Priority::kNormal), 0.2, 1e-9);
  // In 0.8 s of which a fifth is theirs, one second: 0.2 of it, with a standard deviation of 0.4 ms
  // times the root of the 500 that come in each.
  EXPECT_NEAR(share("one", 0.8e6), 0.2 + 2 * 0.4e-3 * std::sqrt(500), 1e-9);
  EXPECT_GT(share("many", 0.8e6), 2 * share("one", 0.8e6));
  EXPECT_GT(share("one", 0.1e6), share("one", 0.8e6)) << "less is less regular";
  EXPECT_EQ(share("one", 0), 0.75);
}

TEST_F(TimelineTest, ManyTenantsComeAndGo) {
  Insert({.tenant = "stays", .us = 10});
  for (int i = 0; i < 10'000; ++i) {
    timeline_.Remove(Insert({.tenant = std::to_string(i), .us = 100e3}));
    now_ += seconds(1);
  }
  EXPECT_EQ(timeline_.size(), 1u);
  EXPECT_EQ(timeline_.total_us(), 10);
  EXPECT_EQ(Ask({.tenant = "stays"}).ahead_us, 10);
  EXPECT_EQ(Ask({.tenant = "0"}).others_us, 10);
}

// The slow twin of Timeline: a plain list of entries, summed anew each time.
class SlowTimeline {
 public:
  struct Entry {
    std::string tenant;
    std::string key;
    Rank rank;
    Priority priority;
    TimePoint deadline;
    double us;
    bool pays;
  };

  explicit SlowTimeline(TenantTablePtr terms) : terms_(std::move(terms)) {}

  std::vector<Entry>& entries() { return entries_; }

  bool Pays(const std::string& tenant, const std::string& key) const {
    return std::none_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.tenant == tenant && entry.key == key;
    });
  }
  void Insert(const Timeline::Candidate& candidate) {
    const bool pays = Pays(candidate.tenant, candidate.batch_key);
    entries_.push_back({.tenant = candidate.tenant,
                        .key = candidate.batch_key,
                        .rank = candidate.rank,
                        .priority = candidate.priority,
                        .deadline = candidate.deadline,
                        .us = pays ? candidate.time.alone_us() : candidate.time.own_us,
                        .pays = pays});
  }

  double total() const {
    return Sum([](const Entry&) { return true; });
  }

  Timeline::Forecast Ask(const Timeline::Candidate& candidate, TimePoint now, double device_us,
                         double margin) const {
    Timeline::Forecast forecast;
    const double alone_us = candidate.time.alone_us();
    forecast.own_us =
        Pays(candidate.tenant, candidate.batch_key) ? alone_us : candidate.time.own_us;
    // Powers of two, the first of which reaches to 2.
    const auto size = [](double us) { return us > 1 ? std::ilogb(us) : 0; };
    const auto passed = [&](const Entry& entry) { return size(entry.us) > size(4 * alone_us); };
    const auto mine = [&](const Entry& entry) { return entry.tenant == candidate.tenant; };
    forecast.passed_us = Sum(passed);
    forecast.ahead_us = Sum([&](const Entry& entry) {
      return mine(entry) && !passed(entry) && entry.rank < candidate.rank;
    });
    const auto with_others = [&](double us, double most_us) {
      std::set<std::string> others;
      for (const Entry& entry : entries_) {
        if (!mine(entry)) others.insert(entry.tenant);
      }
      double weight = 0;
      for (const std::string& other : others) weight += terms_->WeightOf(other);
      return std::min(most_us, us * weight / terms_->WeightOf(candidate.tenant));
    };
    forecast.others_us =
        with_others(forecast.ahead_us + forecast.own_us,
                    Sum([&](const Entry& entry) { return !mine(entry) && !passed(entry); }));
    const double others = Sum([&](const Entry& entry) { return !mine(entry); });
    for (const Entry& late : entries_) {
      if (!mine(late) || late.rank < candidate.rank || late.priority < candidate.priority ||
          late.deadline == TimePoint::max()) {
        continue;
      }
      const double until =
          Sum([&](const Entry& entry) { return mine(entry) && entry.rank <= late.rank; });
      const auto in_time = [&](double us) {
        return margin * (device_us + us + with_others(us, others)) <=
               Microseconds(now, late.deadline);
      };
      if (in_time(until) && !in_time(until + forecast.own_us)) forecast.makes_late = true;
    }
    return forecast;
  }

 private:
  template <typename Counts>
  double Sum(Counts counts) const {
    double sum = 0;
    for (const Entry& entry : entries_) sum += counts(entry) ? entry.us : 0;
    return sum;
  }

  const TenantTablePtr terms_;
  std::vector<Entry> entries_;
};

class TimelineRandomTest : public TimelineTest, protected Seeded {
 protected:
  // From 0 to 2^20 us, with a fraction that keeps sums off the borders of deadlines.
  double SomeUs() {
    return std::ldexp(static_cast<double>(Uniform(1, 1 << 20)) / (1 << 20),
                      static_cast<int>(Uniform(-2, 20))) +
           1e-4 * UpTo(1000);
  }
  Wish SomeWish() {
    Wish wish{.tenant = std::vector<std::string>{"a", "b", "c", "heavy"}[Uniform(0, 3)],
              .us = SomeUs(),
              .key = std::to_string(Uniform(0, 20)),
              .batch_us = SomeUs(),
              .priority = static_cast<Priority>(Uniform(0, 2))};
    if (Uniform(0, 2) > 0) wish.deadline_us = static_cast<double>(UpTo(8'000'000));
    return wish;
  }
};

TEST_F(TimelineRandomTest, AgreesWithAPlainList) {
  SlowTimeline twin(terms_);
  std::vector<Timeline::Place> places;
  int late = 0;
  const auto expect_near = [](double us, double expected) {
    EXPECT_NEAR(us, expected, 1e-6 * std::max(1.0, expected));
  };
  for (int round = 0; round < 3000 && !HasFailure(); ++round) {
    const Wish wish = SomeWish();
    const Timeline::Candidate candidate = CandidateOf(wish);
    if (Uniform(0, 19) == 0) {
      terms_->Set(Weights({{"heavy", UpTo(9)}, {"b", 0.001 * UpTo(1000)}}));
      timeline_.ReadWeights();
    }
    const auto device_us = static_cast<double>(Uniform(0, 100'000));
    const double margin = 1 + 0.5 * static_cast<double>(Uniform(0, 2));
    const Timeline::Forecast forecast = timeline_.Ask(candidate, now_, device_us, margin);
    const Timeline::Forecast expected = twin.Ask(candidate, now_, device_us, margin);
    expect_near(forecast.ahead_us, expected.ahead_us);
    expect_near(forecast.others_us, expected.others_us);
    expect_near(forecast.own_us, expected.own_us);
    expect_near(forecast.passed_us, expected.passed_us);
    EXPECT_EQ(forecast.makes_late, expected.makes_late);
    late += expected.makes_late;

    places.push_back(timeline_.Insert(candidate, now_));
    twin.Insert(candidate);
    while (!places.empty() && Uniform(0, 63) < static_cast<int64_t>(places.size())) {
      const auto at = Uniform(0, static_cast<int64_t>(places.size()) - 1);
      timeline_.Remove(places[at]);
      places.erase(places.begin() + at);
      twin.entries().erase(twin.entries().begin() + at);
    }
    if (!places.empty() && Uniform(0, 1) == 0) {
      const auto at = Uniform(0, static_cast<int64_t>(places.size()) - 1);
      const PredictedTime time = {.batch_us = SomeUs(), .own_us = SomeUs()};
      timeline_.AdjustTime(places[at], time);
      SlowTimeline::Entry& entry = twin.entries()[at];
      entry.us = entry.pays ? time.alone_us() : time.own_us;
    }
    expect_near(timeline_.total_us(), twin.total());
    EXPECT_EQ(timeline_.size(), twin.entries().size());
    now_ += microseconds(Uniform(0, 100'000));
  }
  EXPECT_GT(late, 0) << "or this test says little";
  for (const Timeline::Place& place : places) timeline_.Remove(place);
  EXPECT_EQ(timeline_.total_us(), 0);
}

}  // namespace
}  // namespace castor
