// Shared memory that cannot be used: references outside of a region, regions that shrink or are
// unregistered while in use, and objects of absurd size.

#include <string>
#include <thread>

#include "tests/integration/shared_memory/fixture.h"

namespace castor::testing {
namespace {

TEST_F(SharedMemoryTest, ReferencesOutsideOfARegionAreRefusedByField) {
  StartReal();
  Region region(100);
  ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 100).ok());
  const auto key_at = [&](const std::string& name, int64_t offset, int64_t size) {
    v1::AttendRequest request = AttendOf(3);  // 24 bytes each
    SetRef(name, offset, size, request.mutable_key()->mutable_shared_memory());
    return AttendOutcome(request);
  };
  const std::string invalid = "INVALID_ARGUMENT INVALID_FIELD key.shared_memory";
  EXPECT_EQ(key_at("r", 76, 24), "OK");
  EXPECT_EQ(key_at("x", 0, 24), "NOT_FOUND REGION_NOT_FOUND key.shared_memory.region");
  EXPECT_EQ(key_at("r", 77, 24), invalid + ".size");
  for (const int64_t offset : {int64_t{101}, kMax, kMax - 23, int64_t{-1}, kMin}) {
    EXPECT_EQ(key_at("r", offset, 24), invalid + ".offset") << offset;
  }
  for (const int64_t size : {kMax, kMax - 1, int64_t{-24}, kMin}) {
    EXPECT_EQ(key_at("r", 1, size), invalid + ".size") << size;
  }
  // Within the region, but not the size that the shape needs.
  for (const int64_t size : {0, 23, 25}) EXPECT_EQ(key_at("r", 0, size), invalid) << size;

  const auto output_at = [&](const std::string& name, int64_t offset, int64_t size) {
    v1::AttendRequest request = AttendOf(3);
    SetRef(name, offset, size, request.mutable_output());
    return AttendOutcome(request);
  };
  EXPECT_EQ(output_at("r", 76, 24), "OK");
  EXPECT_EQ(output_at("x", 0, 24), "NOT_FOUND REGION_NOT_FOUND output.region");
  EXPECT_EQ(output_at("r", kMax, 24), "INVALID_ARGUMENT INVALID_FIELD output.offset");
  EXPECT_EQ(output_at("r", 90, 24), "INVALID_ARGUMENT INVALID_FIELD output.size");
  EXPECT_EQ(output_at("r", 0, 23), "INVALID_ARGUMENT INVALID_FIELD output.size");
}

TEST_F(SharedMemoryTest, ARegionThatWasCutSpoilsOnlyItsRequests) {
  StartReal();
  v1::AttendRequest request = AttendOf(3);
  const std::string expected = Attend(request).output().raw();
  Region region(4096);
  ASSERT_TRUE(Register("r", region.object().key(), Region::kOffset, 4096).ok());
  region.Take(&request, 24);
  EXPECT_EQ(AttendOutcome(request), "OK");
  // Cut to the middle of each of the four ranges, then to nothing.
  const int64_t from = Region::kOffset;
  const std::string invalid = "INVALID_ARGUMENT INVALID_FIELD ";
  for (const auto& [left, field] :
       {std::pair{from + 80, "output"}, std::pair{from + 60, "value.shared_memory"},
        std::pair{from + 30, "key.shared_memory"}, std::pair{from + 3, "query.shared_memory"},
        std::pair{int64_t{0}, "query.shared_memory"}}) {
    region.object().Cut(left);
    EXPECT_EQ(AttendOutcome(request), invalid + field);
    EXPECT_EQ(region.object().size(), left) << "an answer must not make it longer";
  }
  EXPECT_EQ(Attend(AttendOf(3)).output().raw(), expected);
  EXPECT_TRUE(AwaitNoBytes());
}

// A call that runs, with all its tensors in the region "r".
class RunningCallTest : public SharedMemoryTest {
 protected:
  void SetUp() override {
    StartServer();
    ASSERT_TRUE(Register("r", region_.object().key(), Region::kOffset, 4096).ok());
    expected_ = request_.value().raw();
    region_.Take(&request_, 24);
    engine_->HoldRunning();
    caller_ = std::thread([&] { outcome_ = Outcome(call_.Run(*attention_, request_)); });
    ASSERT_TRUE(engine_->AwaitRunning());
  }

  std::string OutcomeOnceReleased() {
    engine_->Release();
    caller_.join();
    return outcome_;
  }

  Region region_{4096};
  v1::AttendRequest request_ = AttendOf(3);
  std::string expected_;
  AttendCall call_;
  std::string outcome_;
  std::thread caller_;
};

TEST_F(RunningCallTest, ARegionThatIsCutIsAnErrorOfThatCall) {
  region_.object().Cut(0);
  EXPECT_EQ(OutcomeOnceReleased(), "INVALID_ARGUMENT INVALID_FIELD output");
  EXPECT_EQ(region_.object().size(), 0);
  EXPECT_EQ(AttendOutcome(AttendOf(3)), "OK");
}

TEST_F(RunningCallTest, ARegionThatIsForgottenStillTakesItsAnswer) {
  // Another object takes its name and its place.
  const SharedObject other(4096);
  ASSERT_TRUE(Unregister("r").ok());
  ASSERT_TRUE(Register("r", other.key(), 0, 4096).ok());
  EXPECT_EQ(OutcomeOnceReleased(), "OK");
  EXPECT_EQ(region_.Read(request_.output()), expected_);
  EXPECT_EQ(other.Read(0, 4096), std::string(4096, '\0'));
  ASSERT_TRUE(Unregister("r").ok());
  EXPECT_EQ(AttendOutcome(request_), "NOT_FOUND REGION_NOT_FOUND query.shared_memory.region");
}

TEST_F(RunningCallTest, NothingIsWrittenIfItIsCancelled) {
  call_.context.TryCancel();
  ASSERT_TRUE(engine_->AwaitCancels(1));
  EXPECT_TRUE(OutcomeOnceReleased().starts_with("CANCELLED"));
  ASSERT_TRUE(AwaitNoCalls());
  EXPECT_EQ(region_.Read(request_.output()), std::string(24, '\0'));
}

// Sizes that cost nothing to declare: a sparse object of 2^40 bytes, and tensors that claim them.
TEST_F(SharedMemoryTest, HugeObjectsAllocateNothing) {
  StartReal();
  constexpr int64_t kHuge = int64_t{1} << 40;
  const SharedObject object(kHuge);
  ASSERT_TRUE(Register("r", object.key(), 0, kHuge).ok());
  v1::AttendRequest request = AttendOf(3);
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    tensor->set_shape(0, kHuge / 8);
    SetRef("r", 0, kHuge, tensor->mutable_shared_memory());
  }
  const int64_t before = ResidentBytes();
  for (int i = 0; i < 100; ++i) {
    const std::string outcome = AttendOutcome(request);
    EXPECT_TRUE(outcome.starts_with("RESOURCE_EXHAUSTED TOO_LARGE") ||
                outcome.starts_with("INVALID_ARGUMENT"))
        << outcome;
  }
  EXPECT_LT(ResidentBytes(), before + (64 << 20));
}

// 2^20 clusters of all tokens but one, values of 2^22: the bytes for one head are a multiple of
// 2^64.
v1::AttendRequest AttendWithALayoutThatWraps() {
  constexpr int64_t kTokens = int64_t{1} << 20;
  constexpr int64_t kDim = int64_t{1} << 22;
  v1::AttendRequest request;
  const auto set = [](std::initializer_list<int64_t> shape, v1::Tensor* tensor) {
    int64_t bytes = 4;
    for (const int64_t dimension : shape) {
      tensor->add_shape(dimension);
      bytes *= dimension;
    }
    tensor->set_dtype(v1::FLOAT32);
    SetRef("r", 0, bytes, tensor->mutable_shared_memory());
  };
  set({kTokens, 1, 1}, request.mutable_query());
  set({kTokens, 1, 1}, request.mutable_key());
  set({kTokens, 1, kDim}, request.mutable_value());
  v1::Cast& cast = *request.mutable_cast();
  set({kTokens, 1, 1}, cast.mutable_surrogate_tokens());
  set({kTokens}, cast.mutable_gate());
  cast.set_cluster_size(kTokens - 1);
  return request;
}

TEST_F(SharedMemoryTest, ALayoutThatWouldWrapIsTooLarge) {
  // The second budget admits every tensor, so there it is the layout that is too large.
  for (const int64_t budget : {EngineOptions().max_queued_bytes, kMax}) {
    EngineOptions options;
    options.max_queued_bytes = budget;
    StartReal(options);
    const SharedObject object(int64_t{1} << 44);
    ASSERT_TRUE(Register("r", object.key(), 0, object.size()).ok());
    v1::AttendRequest request = AttendWithALayoutThatWraps();
    for (const auto heads : {v1::Cast::SHARED, v1::Cast::PER_HEAD}) {
      request.mutable_cast()->set_head_clustering(heads);
      EXPECT_EQ(AttendOutcome(request), "RESOURCE_EXHAUSTED TOO_LARGE") << budget;
    }
    EXPECT_EQ(AttendOutcome(AttendOf(3)), "OK");
  }
}

}  // namespace
}  // namespace castor::testing
