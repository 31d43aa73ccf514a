// Which of a name's servers a connection takes.

#include "client/load/drive/endpoint.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "client/load/base/errors.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kForget{5};

// A name whose servers the test decides.
class Name {
 public:
  explicit Name(std::vector<std::string> hosts) : hosts_(std::move(hosts)) {}

  void Become(std::vector<std::string> hosts) {
    const std::lock_guard lock(mu_);
    hosts_ = std::move(hosts);
  }
  Resolver resolver() {
    return [this](const std::string& target) {
      const std::lock_guard lock(mu_);
      if (hosts_.empty()) throw ServerError("no such host: " + target);
      std::vector<Address> addresses;
      for (const std::string& host : hosts_) addresses.push_back(Resolve(host + ":1").at(0));
      return addresses;
    };
  }
  std::function<void()> changed() {
    return [this] {
      const std::lock_guard lock(mu_);
      ++changes_;
      changed_.notify_all();
    };
  }
  void AwaitChange(int count) {
    std::unique_lock lock(mu_);
    ASSERT_TRUE(changed_.wait_for(lock, seconds(30), [&] { return changes_ >= count; }));
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::string> hosts_;
  int changes_ = 0;
};

class EndpointTest : public ::testing::Test {
 protected:
  static std::map<std::string, int> Picked(Endpoint& endpoint, int count, Clock::time_point now) {
    std::map<std::string, int> picked;
    for (int i = 0; i < count; ++i) ++picked[HostBytes(endpoint.Pick(now))];
    return picked;
  }
  static std::string HostBytes(const Address& address) {
    return {reinterpret_cast<const char*>(&address.bytes), address.size};
  }
  static std::string Bytes(const std::string& host) { return HostBytes(Resolve(host + ":1")[0]); }
  static Address Of(const std::string& host) { return Resolve(host + ":1")[0]; }

  Clock::time_point now_ = Clock::now();
};

TEST_F(EndpointTest, ConnectionsAreSharedEvenly) {
  Name name({"10.0.0.1", "10.0.0.2", "10.0.0.3"});
  Endpoint endpoint("service:1", name.resolver(), name.changed(), kForget);
  EXPECT_EQ(endpoint.servers(), 3U);
  const auto picked = Picked(endpoint, 7, now_);
  ASSERT_EQ(picked.size(), 3U);
  for (const auto& [host, count] : picked) EXPECT_GE(count, 2);
  // What one server lost, it gets back.
  endpoint.Release(Of("10.0.0.2"));
  endpoint.Release(Of("10.0.0.2"));
  EXPECT_EQ(HostBytes(endpoint.Pick(now_)), Bytes("10.0.0.2"));
}

TEST_F(EndpointTest, AServerWithTwoFamiliesIsOne) {
  Name name({"::1", "127.0.0.1"});
  Endpoint endpoint("[::1]:1", name.resolver(), name.changed(), kForget);
  EXPECT_EQ(endpoint.servers(), 1U);
  endpoint.Pick(now_);
  endpoint.Pick(now_);
  // It is at one of them only, perhaps: nothing to spread.
  endpoint.Release(Of("::1"));
  endpoint.Pick(now_);
  EXPECT_FALSE(endpoint.IsCrowded(Of("127.0.0.1"), now_));
}

TEST_F(EndpointTest, WhatFailedIsLeftAloneForAWhile) {
  Name name({"10.0.0.1", "10.0.0.2"});
  Endpoint endpoint("service:1", name.resolver(), name.changed(), kForget);
  Picked(endpoint, 2, now_);
  endpoint.Failed(Of("10.0.0.1"), now_);
  endpoint.Release(Of("10.0.0.1"));
  EXPECT_EQ(Picked(endpoint, 2, now_), (std::map<std::string, int>{{Bytes("10.0.0.2"), 2}}));
  EXPECT_FALSE(endpoint.IsCrowded(Of("10.0.0.2"), now_ + kForget - milliseconds(1)));
  EXPECT_TRUE(endpoint.IsCrowded(Of("10.0.0.2"), now_ + kForget));
  EXPECT_EQ(HostBytes(endpoint.Pick(now_ + kForget)), Bytes("10.0.0.1"));
}

TEST_F(EndpointTest, IfAllHaveFailedTheyTakeTurns) {
  Name name({"10.0.0.1", "10.0.0.2"});
  Endpoint endpoint("service:1", name.resolver(), name.changed(), kForget);
  for (const char* host : {"10.0.0.1", "10.0.0.2"}) endpoint.Failed(Of(host), now_);
  EXPECT_EQ(Picked(endpoint, 4, now_).size(), 2U);
}

TEST_F(EndpointTest, SuccessorsAreFound) {
  Name name({"10.0.0.1", "10.0.0.2"});
  Endpoint endpoint("service:1", name.resolver(), name.changed(), kForget);
  Picked(endpoint, 4, now_);
  name.Become({"10.0.0.2", "10.0.0.3"});
  endpoint.Resolve();
  name.AwaitChange(1);
  endpoint.Refresh();
  EXPECT_TRUE(endpoint.IsCrowded(Of("10.0.0.1"), now_)) << "gone from the name";
  EXPECT_TRUE(endpoint.IsCrowded(Of("10.0.0.2"), now_)) << "2 against 0";
  EXPECT_EQ(HostBytes(endpoint.Pick(now_)), Bytes("10.0.0.3"));
  EXPECT_EQ(HostBytes(endpoint.Pick(now_)), Bytes("10.0.0.3"));
  EXPECT_FALSE(endpoint.IsCrowded(Of("10.0.0.2"), now_));
  for (int i = 0; i < 2; ++i) endpoint.Release(Of("10.0.0.1"));
  EXPECT_FALSE(endpoint.IsCrowded(Of("10.0.0.1"), now_)) << "forgotten";
}

TEST_F(EndpointTest, ANameThatIsLostForAWhileKeepsItsServers) {
  EXPECT_THROW(Endpoint(
                   "service:1", Name({}).resolver(), [] {}, kForget),
               ServerError);
  Name name({"10.0.0.1"});
  Endpoint endpoint("service:1", name.resolver(), name.changed(), kForget);
  name.Become({});
  endpoint.Failed(Of("10.0.0.1"), now_);
  endpoint.Refresh();
  EXPECT_EQ(HostBytes(endpoint.Pick(now_)), Bytes("10.0.0.1"));
  // It goes on asking.
  name.Become({"10.0.0.9"});
  name.AwaitChange(1);
  endpoint.Refresh();
  EXPECT_EQ(HostBytes(endpoint.Pick(now_)), Bytes("10.0.0.9"));
}

}  // namespace
}  // namespace castor::load
