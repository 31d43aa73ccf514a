#include "client/error.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace castor::client {
namespace {

grpc::Status StatusWith(const google::rpc::Status& details) {
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "query.shape[2]: must be >= 1",
                      details.SerializeAsString());
}

TEST(ParseError, ReadsAllDetails) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_reason("INVALID_FIELD");
  info.set_domain("castor");
  details.add_details()->PackFrom(info);
  google::rpc::BadRequest bad_request;
  bad_request.add_field_violations()->set_field("query.shape[2]");
  details.add_details()->PackFrom(bad_request);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  retry.mutable_retry_delay()->set_nanos(500'000'000);
  details.add_details()->PackFrom(retry);
  google::rpc::RequestInfo request;
  request.set_request_id("r-7");
  details.add_details()->PackFrom(request);
  details.add_details()->set_type_url("type.googleapis.com/some.Unknown");

  const Error error = ParseError(StatusWith(details));
  EXPECT_EQ(error.code, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(error.reason, "INVALID_FIELD");
  EXPECT_EQ(error.field, "query.shape[2]");
  EXPECT_EQ(error.message, "query.shape[2]: must be >= 1");
  EXPECT_EQ(error.retry_after, std::chrono::milliseconds(2500));
  EXPECT_EQ(error.request_id, "r-7");
  EXPECT_EQ(error.ToString(), "INVALID_ARGUMENT (INVALID_FIELD): query.shape[2]: must be >= 1");
}

TEST(ParseError, ControlCharactersAreReplaced) {
  Error error;
  error.reason = "A\x1b[2J";
  error.field = "b\n";
  // An escape sequence of one byte and of two, U+202E and U+2066, and invalid UTF-8.
  error.message = "red \x1b[31m \xc2\x9b 1 \x9b \xe2\x80\xae \xe2\x81\xa6 caf\xc3\xa9\r\nnew";
  const std::string text = error.ToString();
  EXPECT_EQ(text,
            "UNKNOWN (A\ufffd[2J) at b : red \ufffd[31m \ufffd 1 \ufffd \ufffd \ufffd "
            "caf\u00e9\ufffd new");
}

TEST(ParseError, ManagesWithoutDetailsAndWithGarbage) {
  const Error plain = ParseError(grpc::Status(grpc::StatusCode::UNAVAILABLE, "refused"));
  EXPECT_EQ(plain.code, grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(plain.reason, "");
  EXPECT_EQ(plain.retry_after, std::nullopt);

  const Error garbage =
      ParseError(grpc::Status(grpc::StatusCode::INTERNAL, "x", std::string("\xff\xff\xff", 3)));
  EXPECT_EQ(garbage.code, grpc::StatusCode::INTERNAL);
  EXPECT_EQ(garbage.message, "x");

  google::rpc::Status details;
  google::protobuf::Any* any = details.add_details();
  any->set_type_url("type.googleapis.com/google.rpc.ErrorInfo");
  any->set_value("\xff\xff");
  EXPECT_EQ(ParseError(StatusWith(details)).reason, "");
}

TEST(ParseError, IgnoresOtherDomainsAndInvalidDelays) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_reason("DRAINING");
  info.set_domain("mesh.example");
  details.add_details()->PackFrom(info);
  EXPECT_EQ(ParseError(StatusWith(details)).reason, "");

  const auto retry_after = [](int64_t seconds, int32_t nanos) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(seconds);
    retry.mutable_retry_delay()->set_nanos(nanos);
    google::rpc::Status details;
    details.add_details()->PackFrom(retry);
    return ParseError(StatusWith(details)).retry_after;
  };
  EXPECT_EQ(retry_after(0, 1'000'000), std::chrono::milliseconds(1));
  EXPECT_EQ(retry_after(INT64_MAX, 0), std::nullopt);
  EXPECT_EQ(retry_after(-1, 0), std::nullopt);
  EXPECT_EQ(retry_after(1, -1), std::nullopt);
}

TEST(Error, PrintsOneLineWithTheFieldOnce) {
  Error error;
  error.code = grpc::StatusCode::RESOURCE_EXHAUSTED;
  error.reason = "QUEUE_FULL";
  error.message = "no room\nnow";
  error.attempts = 3;
  EXPECT_EQ(error.ToString(), "RESOURCE_EXHAUSTED (QUEUE_FULL): no room now (after 3 attempts)");
  error = Error();
  error.code = grpc::StatusCode::INVALID_ARGUMENT;
  error.field = "a.b";
  error.message = "is bad";
  EXPECT_EQ(error.ToString(), "INVALID_ARGUMENT at a.b: is bad");
  EXPECT_EQ(NameOf(static_cast<grpc::StatusCode>(17)), "UNKNOWN");  // the enum's type holds 31
}

}  // namespace
}  // namespace castor::client
