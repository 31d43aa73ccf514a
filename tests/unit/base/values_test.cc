#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/histogram.h"

namespace castor {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

int64_t Elements(std::vector<int64_t> shape) { return NumElements(shape).value_or(-1); }
int64_t Bytes(DType dtype, std::vector<int64_t> shape) {
  return NumBytes(dtype, shape).value_or(-1);
}

TEST(DTypeTest, MultipliesAndAddsUpToTheLimit) {
  EXPECT_EQ(CheckedMultiply(3, 4), 12);
  EXPECT_EQ(CheckedMultiply(kMax, 1), kMax);
  EXPECT_EQ(CheckedMultiply(kMax, 0), 0);
  EXPECT_EQ(CheckedMultiply(kMax / 2 + 1, 2), std::nullopt);
  EXPECT_EQ(CheckedMultiply(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
}

TEST(DTypeTest, RefusesNegativeOperands) {
  EXPECT_EQ(CheckedMultiply(-1, 4), std::nullopt);
  EXPECT_EQ(CheckedMultiply(kMin, kMin), std::nullopt);
  EXPECT_EQ(CheckedMultiply(-1, 0), std::nullopt);
  EXPECT_EQ(CheckedAdd(5, -1), std::nullopt);
}

TEST(DTypeTest, CountsElementsAndBytes) {
  EXPECT_EQ(Elements({}), 1);
  EXPECT_EQ(Elements({3, 8, 64}), 3 * 8 * 64);
  EXPECT_EQ(Elements({3, 0, 64}), 0);
  EXPECT_EQ(Bytes(DType::kBFloat16, {3, 5}), 30);
}

TEST(DTypeTest, NoticesShapesWhoseProductWraps) {
  // In 64 bits, 2^32 * 2^32 wraps to 0, and so do the bytes of 2^62 elements of 4 bytes.
  EXPECT_EQ(Elements({int64_t{1} << 32, int64_t{1} << 32}), -1);
  EXPECT_EQ(Bytes(DType::kFloat32, {int64_t{1} << 62}), -1);
  EXPECT_EQ(Elements({kMax, kMax, 0}), -1);  // overflows before the zero is seen
  EXPECT_EQ(Elements({4, -1}), -1);
}

TEST(DTypeTest, PrintsShapes) {
  EXPECT_EQ(ShapeString(std::vector<int64_t>{3, 8, 64}), "[3, 8, 64]");
  EXPECT_EQ(ShapeString({}), "[]");
}

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

constexpr double kBounds[] = {1, 2, 4};

TEST(HistogramTest, BoundsAreInclusiveUpperEdges) {
  Histogram histogram(kBounds);
  for (double value : {0.0, 1.0, 1.5, 2.0, 4.0, 4.1, 1e9}) histogram.Observe(value);
  const HistogramSnapshot snapshot = histogram.Snapshot();
  EXPECT_EQ(snapshot.bounds, (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(snapshot.counts, (std::vector<uint64_t>{2, 2, 1, 2}));
  EXPECT_EQ(snapshot.count(), 7u);
  EXPECT_DOUBLE_EQ(snapshot.sum, 0.0 + 1.0 + 1.5 + 2.0 + 4.0 + 4.1 + 1e9);
}

TEST(HistogramTest, DropsWhatWouldPoisonTheSum) {
  Histogram histogram(kBounds);
  histogram.Observe(std::numeric_limits<double>::quiet_NaN());
  histogram.Observe(-1);
  EXPECT_EQ(histogram.Snapshot().count(), 0u);
  EXPECT_EQ(histogram.Snapshot().sum, 0);
}

TEST(HistogramTest, LosesNothingBetweenThreads) {
  Histogram histogram(kBounds);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&histogram] {
      for (int n = 0; n < 10'000; ++n) histogram.Observe(n % 5);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const HistogramSnapshot snapshot = histogram.Snapshot();
  EXPECT_EQ(snapshot.counts, (std::vector<uint64_t>{16'000, 8'000, 16'000, 0}));
  EXPECT_EQ(snapshot.sum, 4 * 10'000 * 2);
}

}  // namespace
}  // namespace castor
