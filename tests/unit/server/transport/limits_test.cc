#include <gtest/gtest.h>

#include "server/transport/listener.h"

namespace castor::server {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(TransportLimitsTest, FollowFromDescriptorsAndMemory) {
  const ServerOptions limits = WithTransportLimits({}, 100'000, 20, 16 * kGiB);
  EXPECT_EQ(limits.max_connections, 4096);
  EXPECT_EQ(limits.max_connections_per_host, 3072);
  EXPECT_EQ(limits.max_new_connections, 1024);
  EXPECT_EQ(limits.max_transport_bytes, 4 * kGiB);
}

TEST(TransportLimitsTest, CallsAreMoreThanTheQueueTakes) {
  ServerOptions options;
  EXPECT_EQ(WithTransportLimits(options, 1024, 20, kGiB).max_calls, 8192);
  options.engine.max_queued_requests = 10'000;
  EXPECT_EQ(WithTransportLimits(options, 1024, 20, kGiB).max_calls, 20'000);
}

TEST(TransportLimitsTest, LeaveDescriptorsForTheRest) {
  ServerOptions options;
  options.max_connections = 1000;  // more than the descriptors allow
  EXPECT_EQ(WithTransportLimits(options, 64, 20, kGiB).max_connections, (64 - 20 - 24) / 2);
  options.shared_memory = true;
  options.max_shared_memory_regions = 10;
  EXPECT_EQ(WithTransportLimits(options, 64, 20, kGiB).max_connections, (64 - 20 - 24 - 10) / 2);
  EXPECT_EQ(WithTransportLimits(options, 16, 20, kGiB).max_connections, 1);
}

TEST(TransportLimitsTest, TheHealthPortHasAFewOfTheConnections) {
  ServerOptions options;
  EXPECT_EQ(WithTransportLimits(options, 100'000, 20, kGiB).max_health_connections, 0);
  options.health_listen = "127.0.0.1:0";
  const ServerOptions roomy = WithTransportLimits(options, 100'000, 20, kGiB);
  EXPECT_EQ(roomy.max_health_connections, 64);
  EXPECT_EQ(roomy.max_connections, 4096);
  const ServerOptions tight = WithTransportLimits(options, 132, 20, kGiB);
  EXPECT_EQ(tight.max_health_connections, 5);
  EXPECT_EQ(tight.max_connections, (132 - 20 - 24 - 8) / 2 - 5);
  EXPECT_EQ(WithTransportLimits(options, 16, 20, kGiB).max_health_connections, 1);
}

TEST(TransportLimitsTest, TwoMessagesFitWhateverTheMemory) {
  ServerOptions options;
  options.max_message_bytes = kGiB;
  EXPECT_EQ(WithTransportLimits(options, 1024, 20, kGiB).max_transport_bytes, 3 * kGiB);
}

TEST(TransportLimitsTest, WhatIsGivenStands) {
  ServerOptions options;
  options.max_connections = 7;
  options.max_connections_per_host = 7;
  options.max_calls = 5;
  options.max_transport_bytes = 99;
  const ServerOptions limits = WithTransportLimits(options, 1024, 20, kGiB);
  EXPECT_EQ(limits.max_connections, 7);
  EXPECT_EQ(limits.max_connections_per_host, 7);
  EXPECT_EQ(limits.max_calls, 5);
  EXPECT_EQ(limits.max_transport_bytes, 99);
}

}  // namespace
}  // namespace castor::server
