#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include "client/credentials.h"
#include "client/file.h"
#include "tests/support/temporary_folder.h"

namespace castor::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr TokenSource::Time kStart{std::chrono::hours(1)};
constexpr auto kLittle = TokenSource::kFresh / 2;

class TokenTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { ASSERT_TRUE(WriteFile(file_, {text}).ok()); }

  TemporaryFolder folder_;
  const std::string file_ = folder_ / "token";
};

TEST_F(TokenTest, AFilesTokenIsReadAgainOnceItIsOld) {
  Write("first\n");
  TokenSource source("", file_);
  EXPECT_FALSE(source.empty());
  EXPECT_EQ(*source.Header(kStart), "Bearer first");
  Write("second");
  EXPECT_EQ(*source.Header(kStart + kLittle), "Bearer first") << "what was read is still fresh";
  EXPECT_EQ(*source.Header(kStart + TokenSource::kFresh), "Bearer second");
}

TEST_F(TokenTest, AFileThatCannotBeReadAnyMoreLeavesTheLastToken) {
  Write("first");
  TokenSource source("", file_);
  EXPECT_EQ(*source.Header(kStart), "Bearer first");
  Write("");
  EXPECT_EQ(*source.Header(kStart + 2 * TokenSource::kFresh), "Bearer first");
  Write("third");
  EXPECT_EQ(*source.Header(kStart + 4 * TokenSource::kFresh), "Bearer third");
}

TEST_F(TokenTest, AFileThatWasNeverReadIsLookedAtEachTime) {
  TokenSource source("", file_);
  const auto missing = source.Header(kStart);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(missing.status().message(), HasSubstr(file_));
  Write("first");
  EXPECT_EQ(*source.Header(kStart), "Bearer first");
}

TEST_F(TokenTest, AnInvalidTokenIsNotShown) {
  for (const char* text : {"", "\n", "secret words", "secret\nwords\n", "secr\xc3\xa9t"}) {
    Write(text);
    const auto header = TokenSource("", file_).Header(kStart);
    ASSERT_FALSE(header.ok()) << text;
    EXPECT_THAT(header.status().message(), HasSubstr(file_));
    EXPECT_THAT(header.status().message(), Not(HasSubstr("secr")));
  }
  Write(std::string(20 << 10, 'x'));
  EXPECT_FALSE(TokenSource("", file_).Header(kStart).ok());
}

TEST_F(TokenTest, ATokenIsTakenAsItIs) {
  EXPECT_EQ(*TokenSource("abc", "").Header(kStart), "Bearer abc");
  EXPECT_THAT(TokenSource("a b", "").Header(kStart).status().message(), Not(HasSubstr("a b")));
  Write("file");
  EXPECT_EQ(*TokenSource("abc", file_).Header(kStart), "Bearer file") << "a file counts first";
  TokenSource none("", "");
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(*none.Header(kStart), "");
}

TEST(TargetTest, ThisMachineIsKnownByItsAddresses) {
  for (const char* target :
       {"localhost", "localhost:50051", "127.0.0.1:50051", "127.8.9.10:1", "[::1]:50051", "::1",
        "unix:/run/castor", "unix:///run/castor", "unix-abstract:castor", "dns:localhost:1",
        "dns:///localhost:1", "ipv4:127.0.0.1:1,127.0.0.2:1", "ipv6:[::1]:1", "0.0.0.0:50051",
        "[::]:50051", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(IsOnThisMachine(target)) << target;
  }
  for (const char* target :
       {"", "castor:50051", "10.0.0.1:50051", "127.0.0.1.example:1", "127.example:1",
        "localhost.example:1", "[::2]:1", "0.0.0.1:1", "dns://8.8.8.8/localhost:1",
        "dns:///castor:1", "ipv4:127.0.0.1:1,10.0.0.1:1", "xds:///localhost", "[::1:50051",
        "example/unix:x"}) {
    EXPECT_FALSE(IsOnThisMachine(target)) << target;
  }
}

TEST(TargetTest, ThisMachinesInterfacesAreOnIt) {
  ifaddrs* all = nullptr;
  ASSERT_EQ(getifaddrs(&all), 0);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    const auto* const four = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    ASSERT_NE(inet_ntop(AF_INET, &four->sin_addr, text, sizeof(text)), nullptr);
    EXPECT_TRUE(IsOnThisMachine(std::string(text) + ":50051")) << text;
  }
  freeifaddrs(all);
}

}  // namespace
}  // namespace castor::client
