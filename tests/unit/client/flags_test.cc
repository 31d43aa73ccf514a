#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "client/cli/attend/kernel_flags.h"
#include "client/cli/command.h"
#include "client/cli/security_flags.h"
#include "client/cli/values.h"
#include "tests/support/secure_server.h"

namespace castor::cli {
namespace {

using ::testing::HasSubstr;

v1::AttendRequest RequestOf(const std::string& kernel) {
  v1::AttendRequest request;
  ApplyKernel(kernel, &request);
  return request;
}

// "" if --kernel takes it.
std::string ErrorOf(const std::string& kernel) {
  try {
    CheckKernel(kernel);
    return "";
  } catch (const CLI::ValidationError& error) {
    return error.what();
  }
}

TEST(KernelFlag, EveryKernelOfTheContractIsTaken) {
  const auto& kernels = *v1::AttendRequest::descriptor()->FindOneofByName("kernel");
  for (int i = 0; i < kernels.field_count(); ++i) {
    const std::string& name = kernels.field(i)->name();
    v1::EncodeRequest encode;
    ApplyKernel(name, &encode);
    EXPECT_EQ(RequestOf(name).kernel_case(), kernels.field(i)->number());
    EXPECT_NE(encode.kernel_case(), v1::EncodeRequest::KERNEL_NOT_SET);
  }
  EXPECT_EQ(RequestOf("").kernel_case(), v1::AttendRequest::KERNEL_NOT_SET);
}

TEST(KernelFlag, ParametersOfEveryTypeAreSetAndShownAsTheyAreGiven) {
  const std::string text =
      "clusters=64,bits=7,hash-bias=false,seed=18446744073709551615,topk=9,clustering=query-space,"
      "rest-mass=query,rest-groups=16";
  const v1::ImprovedClustered improved =
      RequestOf("improved-clustered," + text).improved_clustered();
  EXPECT_EQ(improved.seed(), UINT64_MAX);
  EXPECT_TRUE(improved.has_hash_bias());
  EXPECT_EQ(improved.rest_mass(), v1::ImprovedClustered::QUERY);
  EXPECT_EQ(ParametersText(improved), text);
  const v1::Automatic automatic =
      RequestOf("automatic,allowed=improved_clustered,allowed=vanilla,max-relative-error=0.5")
          .automatic();
  EXPECT_THAT(automatic.allowed(), ::testing::ElementsAre(v1::IMPROVED_CLUSTERED, v1::VANILLA));
  EXPECT_EQ(automatic.max_relative_error(), 0.5);
  EXPECT_EQ(RequestOf("cast,layer=m/0").cast().layer(), "m/0");
}

TEST(KernelFlag, ErrorsNameTheAllowedValues) {
  EXPECT_THAT(ErrorOf("clusterd"), HasSubstr("'clusterd' is not one of vanilla, clustered,"));
  EXPECT_THAT(
      ErrorOf("clustered,topk=5"),
      HasSubstr("'topk' is not a parameter of clustered, which takes clusters, iterations"));
  EXPECT_THAT(ErrorOf("clustered,clusters=65537"), HasSubstr("clusters: '65537'"));
  EXPECT_THAT(ErrorOf("clustered,clusters=65537"), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(ErrorOf("clustered,clusters"), HasSubstr("clusters: ''"));
  EXPECT_THAT(ErrorOf("clustered,seed=-1"), HasSubstr("seed"));
  EXPECT_THAT(ErrorOf("automatic,max-relative-error=nan"), HasSubstr("max-relative-error"));
  EXPECT_THAT(ErrorOf("vanilla,causal=1"), HasSubstr("neither true nor false"));
  EXPECT_THAT(ErrorOf("cast,clustering=best"),
              HasSubstr("not one of top-k, single-assignment-top-k"));
  EXPECT_THAT(ErrorOf("vanilla,"), HasSubstr("'' is not a parameter"));
  EXPECT_THROW(RequestOf("cast,gate=/none.npy"), CLI::Error);
}

TEST(KernelFlag, HelpStatesRangesAndDefaults) {
  CLI::App app;
  std::string kernel;
  AddKernelFlag(&app, &kernel);
  EXPECT_THAT(app.help(), HasSubstr("clusters=1..65536 (100), iterations=1..1000 (10"));
  EXPECT_THAT(app.help(), HasSubstr("rest-mass=centroid|query"));
}

class SecurityFlagsTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("CASTOR_TOKEN"); }
  void TearDown() override { unsetenv("CASTOR_TOKEN"); }

  static SecurityFlags Parse(std::vector<std::string> arguments) {
    CLI::App app;
    SecurityFlags flags;
    AddSecurityFlags(&app, &flags, "group");
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
    return flags;
  }
  static client::ClientOptions Options(const std::vector<std::string>& arguments) {
    client::ClientOptions options;
    Parse(arguments).ApplyTo(&options);
    return options;
  }
};

TEST_F(SecurityFlagsTest, AnyFileOrNameImpliesTls) {
  EXPECT_FALSE(Options({}).tls.has_value());
  EXPECT_TRUE(Options({"--tls"}).tls.has_value());
  EXPECT_EQ(Options({"--ca", "a"}).tls->ca_file, "a");
  EXPECT_EQ(Options({"--server-name", "n"}).tls->server_name, "n");
  EXPECT_EQ(Options({"--cert", "c", "--cert-key", "k"}).tls->key_file, "k");
  EXPECT_THROW(Options({"--cert", "c"}), UsageError);
  EXPECT_THROW(Options({"--cert-key", "k"}), UsageError);
  EXPECT_FALSE(Options({"--token-file", "t"}).tls.has_value());
}

TEST_F(SecurityFlagsTest, ATokenFileCountsBeforeTheEnvironment) {
  setenv("CASTOR_TOKEN", "secret", 1);
  EXPECT_EQ(Options({}).token, "secret");
  EXPECT_EQ(Options({"--token-file", "t"}).token, "");
  EXPECT_EQ(Options({"--token-file", "t"}).token_file, "t");
}

// A name has several addresses, and gRPC reports only the last failure: that nothing listens at
// [::1].
TEST_F(SecurityFlagsTest, TheReasonIsFoundBehindALocalName) {
  const testing::TestAuthority authority;
  const testing::SecureServer server({.identity = authority.IssueForLocalhost()});
  const std::string port = std::to_string(server.port());
  const std::string refused =
      "failed to connect to all addresses; last error: UNKNOWN: ipv6:[::1]:" + port +
      ": Failed to connect to remote host: Connection refused";
  client::ClientOptions options{.target = "localhost:" + port};
  EXPECT_EQ(HandshakeHint(refused, options), "does the server use TLS? Try --tls");
  options.tls.emplace();
  EXPECT_NE(HandshakeHint(refused, options).find("see --ca"), std::string::npos);
  options.target = "127.0.0.1:" + port;
  EXPECT_EQ(HandshakeHint(refused, options), "");
}

// The text that CLI11 continues with, or "refused".
std::string Taken(const CLI::Validator& validator, std::string text) {
  return validator(text).empty() ? text : "refused";
}

TEST(Values, WholeNumbersAreDecimalAndInRange) {
  const CLI::Validator number = Number(-5, 100);
  for (const char* text : {"-5", "0", "7", "100"}) EXPECT_EQ(Taken(number, text), text);
  EXPECT_EQ(Taken(number, "010"), "10") << "not octal";
  EXPECT_EQ(Taken(number, "+7"), "7");
  for (const char* text : {"", " ", "-6", "101", "0x10", "7.0", "7e0", "7x", " 7", "7 ", "nan",
                           "inf", "--7", "+-7", "+", "-", "99999999999999999999"}) {
    EXPECT_EQ(Taken(number, text), "refused") << text;
  }
  const CLI::Validator seed = Number(uint64_t{0}, UINT64_MAX);
  EXPECT_EQ(Taken(seed, "18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(Taken(seed, "18446744073709551616"), "refused");
  EXPECT_EQ(Taken(seed, "-1"), "refused");
}

TEST(Values, RealNumbersAreFinite) {
  constexpr double kGreatest = std::numeric_limits<double>::max();
  const CLI::Validator any = Number(-kGreatest, kGreatest);
  for (const char* text : {"0", "-0.5", "1e300", "1e-300", ".5", "3."}) {
    EXPECT_EQ(Taken(any, text), text);
  }
  for (const char* text : {"nan", "-nan", "NAN", "nan(1)", "inf", "-inf", "infinity", "1e999",
                           "-1e999", "0x1p3", "", " ", "1,5", "1.5x", "e5"}) {
    EXPECT_EQ(Taken(any, text), "refused") << text;
  }
  const CLI::Validator part = Number(0.0, 1.0);
  EXPECT_EQ(Taken(part, "1"), "1");
  EXPECT_EQ(Taken(part, "1.0000001"), "refused");
  EXPECT_EQ(Taken(part, "nan"), "refused");
}

TEST(Values, Utf8IsWhatTheStandardSays) {
  for (const std::string& text :
       {std::string("plain"), std::string("\0nul", 4), std::string("\xc2\x80 \xdf\xbf"),
        std::string("\xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf"),
        std::string("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf")}) {
    EXPECT_EQ(FindInvalidUtf8(text), std::nullopt) << text;
  }
  for (const char* tail :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2x", "\xe0\x80\x80", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xe2\x82", "\xe2\x82x", "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x9f\x98", "\xff"}) {
    EXPECT_EQ(FindInvalidUtf8("ab" + std::string(tail)), 2u) << ::testing::PrintToString(tail);
  }
  EXPECT_EQ(Taken(Utf8(), ""), "");
  EXPECT_EQ(Taken(Name(), ""), "refused");
  EXPECT_EQ(Taken(Name(), "a\xff"), "refused");
  EXPECT_EQ(Taken(FileName(), "a\xff"), "a\xff") << "file systems know no encodings";
  EXPECT_EQ(Taken(FileName(), ""), "refused");
}

}  // namespace
}  // namespace castor::cli
