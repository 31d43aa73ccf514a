#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include "absl/strings/escaping.h"
#include "client/load/base/errors.h"
#include "client/load/http2/address.h"
#include "client/load/http2/status.h"

namespace castor::load {
namespace {

grpc::Status Of(std::vector<std::pair<std::string, std::string>> fields, uint32_t error = 0) {
  EndFields end;
  for (const auto& [name, value] : fields) end.Take(name, value);
  return StatusOf(end, error);
}

TEST(Http2StatusTest, OkIsOk) {
  EXPECT_TRUE(Of({{":status", "200"}, {"grpc-status", "0"}}).ok());
  EXPECT_FALSE(Of({{":status", "200"}, {"grpc-status", "0"}}, NGHTTP2_CANCEL).ok());
}

TEST(Http2StatusTest, MessagesAndDetailsAreDecoded) {
  const std::string details("\0\1\xff details", 11);
  std::string encoded = absl::Base64Escape(details);
  while (encoded.ends_with('=')) encoded.pop_back();  // gRPC sends none
  const grpc::Status status = Of({{"grpc-status", "8"},
                                  {"grpc-message", "50%25 of %C3%A4, 5% and %zz, %4"},
                                  {"grpc-status-details-bin", encoded}});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "50% of \xC3\xA4, 5% and %zz, %4");
  EXPECT_EQ(status.error_details(), details);
  EXPECT_EQ(Of({{"grpc-status", "8"}, {"grpc-status-details-bin", "!"}}).error_details(), "");
}

TEST(Http2StatusTest, WhatIsNoGrpcIsTranslatedAsGrpcDoes) {
  EXPECT_EQ(Of({{":status", "503"}}).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Of({{":status", "404"}}).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Of({{":status", "401"}}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Of({{":status", "302"}}).error_code(), grpc::StatusCode::UNKNOWN);
  EXPECT_EQ(Of({{":status", "200"}}).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(Of({}).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(Of({{"grpc-status", "seven"}}).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(Of({{"grpc-status", "99"}}).error_code(), grpc::StatusCode::UNKNOWN);
  EXPECT_EQ(Of({}, NGHTTP2_REFUSED_STREAM).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Of({}, NGHTTP2_ENHANCE_YOUR_CALM).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Of({}, NGHTTP2_PROTOCOL_ERROR).error_code(), grpc::StatusCode::INTERNAL);
}

TEST(AddressTest, TakesGrpcsNames) {
  for (const char* target :
       {"127.0.0.1:80", "dns:127.0.0.1:80", "dns:///127.0.0.1:80", "ipv4:127.0.0.1:80", "[::1]:80",
        "ipv6:[::1]:80", "unix:/tmp/socket", "unix:///tmp/socket", "unix-abstract:name"}) {
    EXPECT_FALSE(Resolve(target).empty()) << target;
  }
  EXPECT_EQ(AuthorityOf("dns:///host:80"), "host:80");
  EXPECT_EQ(AuthorityOf("unix:/tmp/socket"), "localhost");
  EXPECT_EQ(HostOf("dns:///host:80"), "host");
  EXPECT_EQ(HostOf("[::1]:80"), "::1");
  EXPECT_EQ(HostOf("unix:/tmp/socket"), "localhost");
  for (const std::string& target :
       {std::string("host"), std::string(":80"), std::string("host:"), std::string("unix:"),
        std::string("127.0.0.1:port"), "unix:/" + std::string(200, 'x')}) {
    try {
      (void)Resolve(target);
      ADD_FAILURE() << target;
    } catch (const ServerError& error) {
      EXPECT_NE(std::string(error.what()).find(target), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace castor::load
