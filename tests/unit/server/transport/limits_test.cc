#include "server/transport/limits.h"

#include <gtest/gtest.h>

namespace castor::server {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(TransportLimitsTest, FollowFromDescriptorsAndMemory) {
  const ServerOptions limits = WithTransportLimits({}, 100'000, 20, 16 * kGiB);
  EXPECT_EQ(limits.max_connections, 4096);
  EXPECT_EQ(limits.max_connections_per_host, 3072);
  EXPECT_EQ(limits.max_transport_bytes, 4 * kGiB);
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

TEST(TransportLimitsTest, TwoMessagesFitWhateverTheMemory) {
  ServerOptions options;
  options.max_message_bytes = kGiB;
  EXPECT_EQ(WithTransportLimits(options, 1024, 20, kGiB).max_transport_bytes, 2 * kGiB);
}

TEST(TransportLimitsTest, WhatIsGivenStands) {
  ServerOptions options;
  options.max_connections = 7;
  options.max_connections_per_host = 7;
  options.max_transport_bytes = 99;
  const ServerOptions limits = WithTransportLimits(options, 1024, 20, kGiB);
  EXPECT_EQ(limits.max_connections, 7);
  EXPECT_EQ(limits.max_connections_per_host, 7);
  EXPECT_EQ(limits.max_transport_bytes, 99);
}

}  // namespace
}  // namespace castor::server
