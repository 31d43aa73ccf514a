#include "engine/base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace castor {
namespace {

TEST(ErrorTest, EveryReasonSurvivesItsStatus) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(Reason::kInternal); ++i) {
    const auto reason = static_cast<Reason>(i);
    const absl::Status status = MakeError(reason, "why");
    EXPECT_EQ(status.code(), CodeOf(reason)) << NameOf(reason);
    EXPECT_EQ(ReasonOf(status), reason) << NameOf(reason);
    EXPECT_EQ(status.message(), "why");
    EXPECT_TRUE(names.insert(std::string(NameOf(reason))).second) << NameOf(reason);
  }
}

TEST(ErrorTest, FieldsAreInPayloadAndMessage) {
  const absl::Status status = InvalidField("query.shape[2]", "is negative");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FieldOf(status), "query.shape[2]");
  EXPECT_EQ(status.message(), "query.shape[2]: is negative");
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidField);
  EXPECT_EQ(ReasonOf(InvalidField(Reason::kNonFiniteInput, "key", "NaN")), Reason::kNonFiniteInput);
  EXPECT_EQ(FieldOf(MakeError(Reason::kInternal, "")), std::nullopt);
}

TEST(ErrorTest, QueueFullSaysWhenToReturn) {
  const absl::Status status = QueueFull("full", std::chrono::milliseconds(250));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfterOf(status), std::chrono::milliseconds(250));
  EXPECT_EQ(RetryAfterOf(MakeError(Reason::kTooLarge, "")), std::nullopt);
}

TEST(ErrorTest, ForeignStatusesGetAReasonThatSuitsTheirCode) {
  EXPECT_EQ(ReasonOf(absl::InvalidArgumentError("")), Reason::kInvalidField);
  EXPECT_EQ(ReasonOf(absl::CancelledError("")), Reason::kCancelled);
  EXPECT_EQ(ReasonOf(absl::UnavailableError("")), Reason::kDraining);
  EXPECT_EQ(ReasonOf(absl::DataLossError("")), Reason::kInternal);
}

}  // namespace
}  // namespace castor
