// Turns between tenants.
#include "engine/scheduling/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/support/tenant_weights.h"

namespace castor {
namespace {

// The values are the names of their tenants.
using Fair = FairQueue<int, std::string>;

void Push(Fair& queue, const std::string& name, int key) { queue.Insert(name, key, name); }

// The first entry of all, as {tenant, key}. Requires that there is one.
std::pair<std::string, int> FirstIn(Fair& queue) {
  const auto* const first = queue.First([](int, const std::string&) { return true; });
  return {first->second, first->first};
}

// Serves the first entry for so long, and says whose it was.
std::string Serve(Fair& queue, double service = 1) {
  const auto [name, key] = FirstIn(queue);
  queue.Begin(name);
  queue.Charge(name, service);
  return queue.Remove(name, key);
}

// Serves `count` entries, or all, for one unit each: "abab".
std::string Order(Fair& queue, int count = 1000) {
  std::string order;
  while (!queue.empty() && count-- > 0) order += Serve(queue);
  return order;
}

// Brings entries from `key` on.
void PushMany(Fair& queue, const std::string& name, int count, int key = 0) {
  for (int i = 0; i < count; ++i) Push(queue, name, key + i);
}

// What a tenant has had beyond what it was charged with is service, whether it waits or not.
TEST(FairQueueTest, WhatWasHadBesidesIsSettled) {
  Fair queue(Weighted({}));
  PushMany(queue, "a", 4);
  PushMany(queue, "b", 4);
  queue.Settle("a", 2);
  EXPECT_EQ(Order(queue), "bbababaa");

  Fair idle(Weighted({{"h", 2}}));
  PushMany(idle, "a", 1);
  EXPECT_EQ(Order(idle), "a");
  idle.Settle("a", 3);
  idle.Settle("h", 3);  // not known before
  PushMany(idle, "a", 2);
  PushMany(idle, "b", 6);
  PushMany(idle, "h", 3);
  EXPECT_EQ(Order(idle), "bbhhbhbabab") << "from 0; h in halves from 1.5; a from 4";
}

TEST(FairQueueTest, TenantsTakeTurns) {
  Fair queue(Weighted({}));
  PushMany(queue, "a", 5);
  PushMany(queue, "b", 2);
  PushMany(queue, "c", 3);
  EXPECT_EQ(Order(queue), "abcabcacaa");
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueueTest, WithinATenantTheSmallestKeyIsFirst) {
  Fair queue(Weighted({}));
  for (const int key : {5, 3, 4}) Push(queue, "a", key);
  for (const int key : {3, 4, 5}) {
    EXPECT_EQ(FirstIn(queue).second, key);
    Serve(queue);
  }
}

TEST(FairQueueTest, WeightsAreShares) {
  Fair queue(Weighted({{"a", 1}, {"b", 3}}));
  PushMany(queue, "a", 100);
  PushMany(queue, "b", 100);
  EXPECT_EQ(queue.WeightOf("b"), 3);
  const std::string order = Order(queue, 80);
  EXPECT_EQ(std::count(order.begin(), order.end(), 'b'), 60);
}

TEST(FairQueueTest, NewWeightsAreSharesFromTheNextServiceOn) {
  const auto terms = Weighted({{"b", 3}});
  Fair queue(terms);
  PushMany(queue, "a", 300);
  PushMany(queue, "b", 300);
  const auto of_b = [&](int count) {
    const std::string order = Order(queue, count);
    return std::count(order.begin(), order.end(), 'b');
  };
  EXPECT_EQ(of_b(80), 60);
  terms->Set(Weights({{"a", 3}}));
  EXPECT_NEAR(of_b(8), 2, 1);
  EXPECT_NEAR(of_b(80), 20, 1);
  EXPECT_EQ(queue.WeightOf("a"), 3);
  terms->Set({});
  EXPECT_NEAR(of_b(8), 4, 1);
  EXPECT_NEAR(of_b(80), 40, 1);
}

TEST(FairQueueTest, WhatALowWeightMadeOfADebtIsNotKept) {
  const auto terms = Weighted({{"a", 0.001}});
  Fair queue(terms);
  PushMany(queue, "a", 3);
  PushMany(queue, "b", 30);
  EXPECT_EQ(Serve(queue, 4), "a");
  EXPECT_EQ(Order(queue, 9), "bbbbbbbbb");
  EXPECT_EQ(queue.TimeOf("a"), 4000);
  terms->Set({});
  EXPECT_EQ(Order(queue, 4), "bbba") << "it has had 4";
  terms->Set(Weights({{"a", 0.001}}));
  EXPECT_EQ(Order(queue, 3), "bbb");
  terms->Set({});
  EXPECT_EQ(Order(queue, 2), "ab");
}

TEST(FairQueueTest, DebtFollowsTheWeightWhileItsTenantIsIdle) {
  const auto terms = Weighted({});
  Fair queue(terms);
  Push(queue, "a", 0);
  PushMany(queue, "b", 9);
  EXPECT_EQ(Serve(queue, 6), "a");
  terms->Set(Weights({{"a", 3}}));
  EXPECT_EQ(Serve(queue), "b");
  Push(queue, "a", 1);
  EXPECT_EQ(queue.TimeOf("a"), 2);
  EXPECT_EQ(Order(queue, 4), "babb");
}

// Else what a tenant of a great weight is served would be lost once virtual time has come far.
TEST(FairQueueTest, ShortServiceCountsHoweverFarVirtualTimeHasCome) {
  Fair queue(Weighted({{"a", 0.001}, {"c", 1000}}), /*credit=*/100);
  Push(queue, "d", 0);
  Serve(queue, 5e16);
  for (int i = 0; i < 1000; ++i) {
    Push(queue, "a", i);
    Serve(queue, 1e11);  // 1e14 of virtual time
  }
  PushMany(queue, "b", 10);
  PushMany(queue, "c", 3000);
  const std::string order = Order(queue, 2502);
  EXPECT_EQ(std::count(order.begin(), order.end(), 'b'), 3);
  Push(queue, "d", 1);
  EXPECT_EQ(FirstIn(queue).first, "d") << "its debt is of the past";
  EXPECT_LE(queue.TimeOf("d"), queue.TimeOf("c"));
}

TEST(FairQueueTest, LongServiceCountsForMore) {
  Fair queue(Weighted({}));
  PushMany(queue, "a", 9);
  PushMany(queue, "b", 9);
  EXPECT_EQ(Serve(queue, 4), "a");
  EXPECT_EQ(Order(queue, 6), "bbbbab");
}

TEST(FairQueueTest, IdleTimeIsNoCredit) {
  Fair queue(Weighted({}));
  Push(queue, "b", 0);
  PushMany(queue, "a", 100);
  EXPECT_EQ(Serve(queue), "b");
  Order(queue, 50);
  PushMany(queue, "b", 4);
  const double behind = queue.TimeOf("a") - queue.TimeOf("b");
  EXPECT_EQ(behind, 1) << "as far as the service that began last";
  EXPECT_EQ(Order(queue, 6), "bbabab");
}

TEST(FairQueueTest, WhoUsedLessThanItsShareHasALittleCredit) {
  Fair queue(Weighted({{"c", 2}}), /*credit=*/3);
  for (const char* name : {"b", "c"}) {
    Push(queue, name, 0);
    Serve(queue, 0);
  }
  PushMany(queue, "a", 100);
  Order(queue, 50);
  EXPECT_EQ(queue.tenants(), 3u) << "those with credit are remembered";
  PushMany(queue, "b", 6);
  EXPECT_EQ(queue.TimeOf("a") - queue.TimeOf("b"), 4) << "the last service, and the credit";
  EXPECT_EQ(Order(queue, 6), "bbbbba");
  PushMany(queue, "c", 10);
  EXPECT_EQ(Order(queue, 6), "cccccc") << "by its weight, as its share is";
  Push(queue, "new", 0);
  EXPECT_GE(queue.TimeOf("new"), queue.TimeOf("a") - 1) << "a new name brings none";
}

TEST(FairQueueTest, DebtIsRememberedUntilTheOthersHaveCaughtUp) {
  Fair queue(Weighted({}));
  Push(queue, "a", 0);
  PushMany(queue, "b", 9);
  EXPECT_EQ(Serve(queue, 4), "a");
  EXPECT_EQ(queue.tenants(), 2u) << "though it waits for nothing";
  EXPECT_EQ(Serve(queue), "b");
  Push(queue, "a", 1);  // to ask anew is no way out
  EXPECT_EQ(queue.TimeOf("a"), 4);
  EXPECT_EQ(Order(queue, 4), "bbba");
  EXPECT_EQ(Order(queue), "bbbbb");
  Push(queue, "a", 2);
  PushMany(queue, "b", 1);
  EXPECT_EQ(queue.TimeOf("a"), 8) << "and no debt is left: where the last one began";
}

TEST(FairQueueTest, BeginMovesTheTimeOfThoseWhoComeAndChargeThatOfTheTenant) {
  Fair queue(Weighted({{"a", 2}}));
  PushMany(queue, "a", 3);
  queue.Charge("a", 6);
  EXPECT_EQ(queue.TimeOf("a"), 3);
  Push(queue, "early", 0);
  EXPECT_EQ(queue.TimeOf("early"), 0) << "nothing began";
  queue.Begin("a");
  EXPECT_EQ(queue.TimeOf("a"), 3);
  EXPECT_EQ(queue.TimeOf("early"), 0) << "it was here before";
  Push(queue, "late", 0);
  EXPECT_EQ(queue.TimeOf("late"), 3);
  queue.Begin("early");  // never back
  Push(queue, "later", 0);
  EXPECT_EQ(queue.TimeOf("later"), 3);
  // What was charged too much is given back.
  queue.Charge("a", 4);
  queue.Charge("a", -3);
  EXPECT_EQ(queue.TimeOf("a"), 3.5);
}

TEST(FairQueueTest, FirstAsksInTheOrderOfService) {
  Fair queue(Weighted({}));
  PushMany(queue, "a", 2);
  PushMany(queue, "b", 2);
  queue.Charge("a", 1);
  std::vector<std::pair<std::string, int>> asked;
  const auto* const found = queue.First([&](int key, const std::string& name) {
    asked.emplace_back(name, key);
    return false;
  });
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(asked,
            (std::vector<std::pair<std::string, int>>{{"b", 0}, {"b", 1}, {"a", 0}, {"a", 1}}));
  auto* const second = queue.First([](int key, const std::string&) { return key == 1; });
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->second, "b");
}

TEST(FairQueueTest, ManyIdleTenantsAreForgottenTheLeastIndebtedFirst) {
  constexpr int kTenants = 3000;
  Fair queue(Weighted({}));
  // All have been served, each for a little longer than the last, before anybody caught up.
  for (int i = 0; i < kTenants; ++i) Push(queue, std::to_string(i), 0);
  for (int i = 0; i < kTenants; ++i) {
    const std::string name = std::to_string(i);
    queue.Begin(name);
    queue.Charge(name, 1 + i);
    queue.Remove(name, 0);
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.tenants(), 1024u);
  const std::string last = std::to_string(kTenants - 1);
  Push(queue, last, 1);
  Push(queue, "0", 1);
  EXPECT_EQ(queue.TimeOf(last), kTenants);
  EXPECT_EQ(queue.TimeOf("0"), 0);
}

TEST(FairQueueTest, ThoseWithoutDebtAreForgottenAtOnce) {
  Fair queue(Weighted({}));
  for (int i = 0; i < 100; ++i) {
    Push(queue, std::to_string(i), 0);
    queue.Remove(std::to_string(i), 0);  // cancelled
  }
  EXPECT_EQ(queue.tenants(), 0u);
}

class FairQueueRandomTest : public ::testing::Test, protected Seeded {};

// The slow twin of FairQueue: a plain list of tenants, each with all that it has, searched in full.
class SlowFairQueue {
 public:
  struct Tenant {
    std::string name;
    double weight = 1;
    int number = 0;
    double time = 0;
    std::set<int> keys = {};
  };

  SlowFairQueue(TenantTablePtr terms, double credit) : terms_(std::move(terms)), credit_(credit) {}

  void Insert(const std::string& name, int key) {
    auto found = Find(name);
    if (found == tenants_.end()) {
      tenants_.push_back(
          {.name = name, .weight = terms_->WeightOf(name), .number = ++last_, .time = time_});
      found = std::prev(tenants_.end());
    }
    if (found->keys.empty()) found->time = std::max(found->time, time_ - credit_);
    found->keys.insert(key);
  }

  void Remove(const std::string& name, int key) {
    const auto found = Find(name);
    found->keys.erase(key);
    if (!found->keys.empty()) return;
    std::erase_if(tenants_, [this](const Tenant& tenant) {
      return credit_ == 0 && tenant.keys.empty() && tenant.time <= time_;
    });
  }

  void Begin(const std::string& name) { time_ = std::max(time_, Find(name)->time); }
  void Charge(const std::string& name, double service) {
    const auto found = Find(name);
    found->time += service / found->weight;
  }

  void ReadWeights() {
    for (Tenant& tenant : tenants_) {
      const double weight = terms_->WeightOf(tenant.name);
      const double ahead = tenant.time - time_;
      if (ahead > 0 && weight != tenant.weight) {
        tenant.time = time_ + ahead * (tenant.weight / weight);
      }
      tenant.weight = weight;
    }
  }

  std::vector<std::pair<std::string, int>> Order() const {
    std::vector<std::tuple<double, int, int, std::string>> all;
    for (const Tenant& tenant : tenants_) {
      for (const int key : tenant.keys) {
        all.emplace_back(tenant.time, tenant.number, key, tenant.name);
      }
    }
    std::sort(all.begin(), all.end());
    std::vector<std::pair<std::string, int>> order;
    for (const auto& [time, number, key, name] : all) order.emplace_back(name, key);
    return order;
  }
  size_t tenants() const { return tenants_.size(); }

 private:
  std::vector<Tenant>::iterator Find(const std::string& name) {
    return std::find_if(tenants_.begin(), tenants_.end(),
                        [&](const Tenant& tenant) { return tenant.name == name; });
  }

  const TenantTablePtr terms_;
  const double credit_;
  std::vector<Tenant> tenants_;
  int last_ = 0;
  double time_ = 0;
};

TEST_F(FairQueueRandomTest, AgreesWithAPlainList) {
  const auto terms = Weighted({{"a", 0.5}, {"b", 4}});
  const auto credit = static_cast<double>(Uniform(0, 1) * UpTo(20));
  SCOPED_TRACE("credit " + std::to_string(credit));
  Fair queue(terms, credit);
  SlowFairQueue twin(terms, credit);
  const int rounds = Scaled(5000);
  for (int key = 0; key < rounds; ++key) {
    const std::string tenant(1, static_cast<char>('a' + Uniform(0, 5)));
    Push(queue, tenant, key);
    twin.Insert(tenant, key);
    auto order = twin.Order();
    while (!order.empty() && Uniform(0, 1) == 0) {
      // The first is served, or any is served or cancelled.
      const size_t at = Uniform(0, 1) == 0 ? 0 : Uniform(0, static_cast<int64_t>(order.size()) - 1);
      const auto [name, removed] = order[at];
      if (Uniform(0, 3) > 0) {
        const auto service = static_cast<double>(Uniform(0, 8));
        queue.Begin(name);
        queue.Charge(name, service);
        twin.Begin(name);
        twin.Charge(name, service);
      }
      ASSERT_EQ(queue.Remove(name, removed), name);
      twin.Remove(name, removed);
      order = twin.Order();
    }
    if (Uniform(0, 9) == 0) {
      terms->Set(Weights({{"a", 0.1 * UpTo(100)}, {"c", 0.1 * UpTo(100)}}));
      twin.ReadWeights();
      order = twin.Order();
    }
    std::vector<std::pair<std::string, int>> asked;
    queue.First([&](int of, const std::string& name) {
      asked.emplace_back(name, of);
      return false;
    });
    ASSERT_EQ(asked, order);
    ASSERT_EQ(queue.empty(), order.empty());
    ASSERT_EQ(queue.tenants(), twin.tenants());
  }
}

// The bound of start-time fair queueing: while two tenants wait, what they have had by weight
// differs by no more than one service of each.
TEST_F(FairQueueRandomTest, WhoAlwaysWaitsHasItsShare) {
  constexpr int kMost = 50;
  const std::map<std::string, double> shares = {{"a", 1}, {"b", 2.5}, {"c", 7}};
  Fair queue{Weighted(shares)};
  std::map<std::string, double> had;
  for (const auto& [name, weight] : shares) PushMany(queue, name, 1);
  for (int key = 1; key < Scaled(5000); ++key) {
    const double service = UpTo(kMost);
    const std::string name = FirstIn(queue).first;
    Push(queue, name, key);
    ASSERT_EQ(Serve(queue, service), name);
    had[name] += service;
    for (const auto& [one, weight] : shares) {
      for (const auto& [other, other_weight] : shares) {
        ASSERT_LE(had[one] / weight - had[other] / other_weight,
                  kMost / weight + kMost / other_weight + 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace castor
