// Servers that start anew, vanish, refuse, and are not what they should be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "client/top/fleet.h"
#include "tests/unit/client/canned_server.h"

namespace castor::top {
namespace {

using client::CannedServer;
using client::Http;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

std::string PageOf(int start, int requests) {
  const std::string labels = "kernel=\"vanilla\",method=\"attend\"";
  const std::string count = "} " + std::to_string(requests) + "\n";
  return Http("200 OK", "castor_ready 1\nprocess_start_time_seconds " + std::to_string(start) +
                            "\ncastor_requests_total{code=\"OK\"," + labels + count +
                            "castor_request_duration_seconds_bucket{" + labels + ",le=\"1\"" +
                            count);
}

std::unique_ptr<Fleet> Watch(FleetOptions options) {
  auto fleet = Fleet::Create(std::move(options));
  EXPECT_TRUE(fleet.ok()) << fleet.status();
  return *std::move(fleet);
}

ServerView Round(Fleet& fleet) {
  fleet.StartRound(Clock::now());
  while (!fleet.IsRoundComplete()) fleet.Wait(std::chrono::milliseconds(1000));
  fleet.EndRound(Clock::now());
  return fleet.ViewAt(Clock::now()).servers.at(0);
}

TEST(FleetTest, RatesComeWithTheSecondReading) {
  CannedServer server(PageOf(1, 10));
  const auto fleet = Watch({.addresses = {server.address()}});
  EXPECT_FALSE(fleet->ViewAt(Clock::now()).servers.at(0).rates.has_value());
  EXPECT_EQ(Round(*fleet).rates->seconds, 0);
  EXPECT_FALSE(fleet->ViewAt(Clock::now()).moments.back().requests.has_value());
  server.Answer(PageOf(1, 15));
  const ServerView view = Round(*fleet);
  EXPECT_NEAR(view.rates->Sum().requests * view.rates->seconds, 5, 1e-9);
  EXPECT_TRUE(fleet->ViewAt(Clock::now()).moments.back().requests.has_value());
  EXPECT_TRUE(fleet->HasEverRead());
  EXPECT_EQ(fleet->Problem(), "");
}

TEST(FleetTest, ARestartIsShownAndNotCounted) {
  CannedServer server(PageOf(1, 10));
  const auto fleet = Watch({.addresses = {server.address()}});
  (void)Round(*fleet);
  server.Answer(PageOf(99, 50));
  const ServerView view = Round(*fleet);
  EXPECT_TRUE(view.restarted_seconds.has_value());
  EXPECT_EQ(view.rates->seconds, 0) << "nothing to compare with";
  EXPECT_TRUE(Round(*fleet).rates->seconds > 0);
}

TEST(FleetTest, OneThatVanishesIsShownWithoutFiguresUntilItIsBack) {
  CannedServer server(PageOf(1, 10));
  const auto fleet = Watch({.addresses = {server.address()}});
  (void)Round(*fleet);
  server.Answer(Http("503 Service Unavailable", "later"));
  const ServerView gone = Round(*fleet);
  EXPECT_FALSE(gone.rates.has_value());
  EXPECT_TRUE(gone.unreachable_seconds.has_value());
  EXPECT_EQ(gone.error, "HTTP status 503: later");
  server.Answer(PageOf(1, 12));
  const ServerView back = Round(*fleet);
  EXPECT_FALSE(back.unreachable_seconds.has_value());
  EXPECT_NEAR(back.rates->Sum().requests * back.rates->seconds, 2, 1e-9);
}

TEST(FleetTest, WhatIsNoCastorIsAnError) {
  const CannedServer server(Http("200 OK", "go_goroutines 8\n"));
  const auto fleet = Watch({.addresses = {server.address()}});
  EXPECT_THAT(Round(*fleet).error, HasSubstr("not a castor-server's"));
  EXPECT_FALSE(fleet->HasEverRead());
  EXPECT_THAT(fleet->Problem(), HasSubstr(server.address()));
}

TEST(FleetTest, ATokenTravelsToThisMachine) {
  const CannedServer server(PageOf(1, 10));
  const auto here = Watch({.addresses = {server.address()}, .token = "secret"});
  (void)Round(*here);
  EXPECT_THAT(server.request(), HasSubstr("Authorization: Bearer secret\r\n"));
}

TEST(FleetTest, ANameIsLookedUp) {
  const CannedServer server(PageOf(1, 10));
  const auto fleet = Watch({.addresses = {"localhost" + server.address().substr(9)}});
  EXPECT_TRUE(Round(*fleet).rates.has_value());
  const auto nobody = Watch({.addresses = {"castor.invalid"}});
  const ServerView view = Round(*nobody);
  EXPECT_EQ(view.name, "castor.invalid");
  EXPECT_TRUE(view.unreachable_seconds.has_value());
  EXPECT_THAT(nobody->Problem(), HasSubstr("castor.invalid"));
}

TEST(FleetTest, OptionsThatCannotBeUsedAreErrors) {
  EXPECT_FALSE(Fleet::Create({.addresses = {"a/b"}}).ok());
  EXPECT_FALSE(
      Fleet::Create({.addresses = {"a"}, .tls = true, .files = {.ca_file = "/none"}}).ok());
  EXPECT_FALSE(Fleet::Create({.addresses = {"a"}, .token_file = "/none"}).ok());
  EXPECT_TRUE(Fleet::Create({.addresses = {"a"}, .files = {.ca_file = "/none"}}).ok())
      << "nobody needs the file";
}

}  // namespace
}  // namespace castor::top
