#include "server/errors.h"

#include <gtest/gtest.h>

#include <chrono>

#include "engine/base/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace castor::server {
namespace {

google::rpc::Status Unpack(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

template <typename Detail>
std::optional<Detail> Find(const grpc::Status& status) {
  const google::rpc::Status details = Unpack(status);
  for (const google::protobuf::Any& any : details.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

TEST(ErrorsTest, CodesOutsideTheContractAreFaultsOfOurs) {
  for (const absl::StatusCode code : {absl::StatusCode::kUnknown, absl::StatusCode::kAborted,
                                      absl::StatusCode::kDataLoss, absl::StatusCode::kOutOfRange}) {
    const grpc::Status status = ToGrpcStatus(absl::Status(code, "odd"), {});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(Find<google::rpc::ErrorInfo>(status)->reason(), "INTERNAL");
  }
}

TEST(ErrorsTest, RetryHintIsTheEnginesOwn) {
  const absl::Status full = QueueFull("full", std::chrono::milliseconds(1250));
  const auto retry = Find<google::rpc::RetryInfo>(ToGrpcStatus(full, {}));
  ASSERT_TRUE(retry.has_value());
  EXPECT_EQ(retry->retry_delay().seconds(), 1);
  EXPECT_EQ(retry->retry_delay().nanos(), 250'000'000);
  EXPECT_EQ(RetryPushback(full), "1250");
}

TEST(ErrorsTest, InternalErrorsHaveDistinctIds) {
  const absl::Status error = MakeError(Reason::kInternal, "secret");
  const grpc::Status first = ToGrpcStatus(error, {}), second = ToGrpcStatus(error, {});
  const std::string id = Find<google::rpc::ErrorInfo>(first)->metadata().at("error_id");
  EXPECT_NE(id, Find<google::rpc::ErrorInfo>(second)->metadata().at("error_id"));
  EXPECT_NE(first.error_message().find(id), std::string::npos);
  EXPECT_EQ(first.error_message().find("secret"), std::string::npos);
}

// Messages repeat the caller's own text, but clients accept only 8 KiB of metadata. The message is
// percent-encoded, with up to three bytes for one, and the details are base64.
TEST(ErrorsTest, DetailsStayBelowTheMetadataLimitWhateverTheCallerSent) {
  const std::string huge(1 << 20, '\xff');
  const grpc::Status status = ToGrpcStatus(InvalidField(huge, huge), {huge});
  EXPECT_LT(3 * status.error_message().size() + status.error_details().size() * 4 / 3, 7U << 10);
  EXPECT_TRUE(Find<google::rpc::RequestInfo>(status).has_value());
}

TEST(ErrorsTest, PrintableKeepsHeadersAndLogLinesWhole) {
  EXPECT_EQ(Printable("plain text", 100), "plain text");
  EXPECT_EQ(Printable(std::string("a\nb\0c\x7f", 6), 100), "a?b?c?");
  EXPECT_EQ(Printable("\xc3\xa9", 100), "??");
  EXPECT_EQ(Printable("0123456789", 8), "01234...");
  EXPECT_EQ(Printable("01234567", 8), "01234567");
}

}  // namespace
}  // namespace castor::server
