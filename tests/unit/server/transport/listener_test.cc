#include "server/transport/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "server/transport/bind.h"
#include "tests/support/temporary_folder.h"

namespace castor::server {
namespace {

using ::testing::HasSubstr;

// A socket that listens at a path until it is destroyed; the file stays, as after a crash.
class Listening {
 public:
  explicit Listening(const std::string& path)
      : descriptor_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    path.copy(at.sun_path, sizeof(at.sun_path) - 1);
    EXPECT_EQ(bind(descriptor_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0) << path;
    EXPECT_EQ(listen(descriptor_, 8), 0);
  }
  ~Listening() { close(descriptor_); }

 private:
  const int descriptor_;
};

bool Answers(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof(at.sun_path) - 1);
  const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool answers = connect(client, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
  close(client);
  return answers;
}

class UnixSocketTest : public ::testing::Test {
 protected:
  std::string ErrorOf(const std::string& path) {
    return std::string(ListeningSockets::Open("unix:" + path).status().message());
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "castor.sock";
};

TEST_F(UnixSocketTest, TakenByAnyServerThatAnswers) {
  const Listening other(path_);
  EXPECT_THAT(ErrorOf(path_), HasSubstr("another server"));
  EXPECT_TRUE(Answers(path_));
}

TEST_F(UnixSocketTest, ReplacesWhatADeadServerLeft) {
  { const Listening dead(path_); }
  ASSERT_TRUE(std::filesystem::is_socket(path_));
  auto ours = ListeningSockets::Open("unix://" + path_);
  ASSERT_TRUE(ours.ok()) << ours.status();
  EXPECT_TRUE(Answers(path_));
}

TEST_F(UnixSocketTest, TouchesNothingThatIsNoSocket) {
  std::ofstream(path_) << "precious";
  EXPECT_THAT(ErrorOf(path_), HasSubstr("not a socket"));
  EXPECT_EQ(std::filesystem::file_size(path_), 8u);
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(ErrorOf(path_), HasSubstr("not a socket"));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/nowhere", path_);
  EXPECT_THAT(ErrorOf(path_), HasSubstr("not a socket"));
}

TEST_F(UnixSocketTest, AtItsEndRemovesOnlyItsOwn) {
  {
    auto ours = ListeningSockets::Open("unix:" + path_);
    ASSERT_TRUE(ours.ok()) << ours.status();
    std::filesystem::remove(path_);
    std::ofstream(path_) << "of somebody else";
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, NamesWhatCannotWork) {
  EXPECT_THAT(ErrorOf("/no/such/folder/x"), HasSubstr("No such file"));
  EXPECT_THAT(ErrorOf("/tmp/" + std::string(200, 'x')), HasSubstr("too long"));
}

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
