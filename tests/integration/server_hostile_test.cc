// Requests from hostile and careless callers, and callers that vanish, against a whole server with
// the real engine on the CPU. After each attack the server must answer a good request as it did
// before.

#include <chrono>
#include <limits>

#include "tests/integration/raw_client.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {
namespace {

class HostileInputTest : public ServerTest {
 protected:
  void SetUp() override {
    server::ServerOptions options = TestOptions();
    options.max_message_bytes = 1 << 20;
    StartReal({}, options);
    AttendCall good;
    ASSERT_TRUE(good.Run(*attention_, AttendOf(3)).ok());
    expected_ = good.response.output().raw();
  }

  void TearDown() override {
    AttendCall good;
    const grpc::Status status = good.Run(*attention_, AttendOf(3));
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(good.response.output().raw(), expected_);
    EXPECT_TRUE(AwaitNoBytes());
    EXPECT_EQ(server_->engine().stats().load.inflight_requests, 0);
  }

  // The field that the server blames. If the server does not refuse with INVALID_ARGUMENT, returns
  // "" and fails the test.
  std::string BlamedField(const v1::AttendRequest& request) {
    AttendCall call;
    const grpc::Status status = call.Run(*attention_, request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    const Details details = DetailsOf(status);
    if (details.bad_request.field_violations_size() == 0) return "";
    return details.bad_request.field_violations(0).field();
  }

  std::string expected_;  // the good request's output
};

TEST_F(HostileInputTest, WrongSizesNameTheField) {
  v1::AttendRequest request = AttendOf(3);
  request.mutable_value()->mutable_raw()->pop_back();
  EXPECT_EQ(BlamedField(request).rfind("value", 0), 0U);

  request = AttendOf(3);
  request.mutable_key()->mutable_raw()->append("x");
  EXPECT_EQ(BlamedField(request).rfind("key", 0), 0U);

  request = AttendOf(3);
  request.mutable_query()->clear_raw();
  EXPECT_EQ(BlamedField(request).rfind("query", 0), 0U);

  request = AttendOf(3);
  request.clear_value();
  EXPECT_EQ(BlamedField(request).rfind("value", 0), 0U);
}

TEST_F(HostileInputTest, BadDimensionsNameTheField) {
  const int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(),
                            int64_t{1} << 31, int64_t{1} << 62, kMax}) {
    for (int dimension = 0; dimension < 3; ++dimension) {
      SCOPED_TRACE(std::to_string(bad) + " at " + std::to_string(dimension));
      v1::AttendRequest request = AttendOf(3);
      request.mutable_query()->set_shape(dimension, bad);
      EXPECT_EQ(BlamedField(request).rfind("query", 0), 0U);
    }
  }
}

TEST_F(HostileInputTest, ShapesWhoseProductWrapsAreRefused) {
  // 2^32 * 2^31 * 2 elements are 2^64, which wraps to 0 if nobody checks.
  v1::AttendRequest request = AttendOf(3);
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    tensor->set_shape(0, int64_t{1} << 32);
    tensor->set_shape(1, int64_t{1} << 31);
    tensor->set_raw("");
  }
  EXPECT_FALSE(BlamedField(request).empty());
}

TEST_F(HostileInputTest, TwoBillionTokensWithoutDataAllocateNothing) {
  v1::AttendRequest request = AttendOf(3);
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    tensor->set_shape(0, int64_t{1} << 31);
    tensor->clear_raw();
  }
  const int64_t before = ResidentBytes();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(BlamedField(request).empty());
  ExpectGrowthBelow(32 << 20, before, ResidentBytes());
}

TEST_F(HostileInputTest, LengthsThatDoNotAddUpAreRefused) {
  for (const std::vector<int64_t>& lengths :
       std::vector<std::vector<int64_t>>{{1, 1},
                                         {4},
                                         {0, 3},
                                         {-1, 4},
                                         {std::numeric_limits<int64_t>::max(), 4},
                                         {std::numeric_limits<int64_t>::min(), 3}}) {
    v1::AttendRequest request = AttendOf(3);
    for (const int64_t length : lengths) request.add_query_lengths(length);
    EXPECT_EQ(BlamedField(request).rfind("query_lengths", 0), 0U);
  }
}

TEST_F(HostileInputTest, ForeignTypesAndRanksAreRefused) {
  v1::AttendRequest request = AttendOf(3);
  request.mutable_key()->set_dtype(v1::FLOAT16);
  EXPECT_FALSE(BlamedField(request).empty());

  request = AttendOf(3);
  request.mutable_query()->set_dtype(v1::DATA_TYPE_UNSPECIFIED);
  EXPECT_EQ(BlamedField(request).rfind("query", 0), 0U);

  request = AttendOf(3);
  request.mutable_query()->set_dtype(static_cast<v1::DataType>(77));
  EXPECT_EQ(BlamedField(request).rfind("query", 0), 0U);

  request = AttendOf(3);
  for (int i = 0; i < 1000; ++i) request.mutable_query()->add_shape(1);
  EXPECT_EQ(BlamedField(request).rfind("query", 0), 0U);

  request = AttendOf(3);
  request.set_softmax_scale(std::nan(""));
  EXPECT_EQ(BlamedField(request), "softmax_scale");
}

// A row would be NaN, or as if it saw no key.
TEST_F(HostileInputTest, NumbersThatOverflowAreRefusedByTheirField) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const int64_t heads = AttendOf(3).query().shape(1);
  const auto of_tokens = [](float value, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return client::MakeTensor(std::vector<float>(count, value), shape);
  };
  v1::AttendRequest request = AttendOf(3);
  for (int64_t h = 0; h < heads; ++h) request.mutable_positions()->add_alibi_slopes(3e38f);
  EXPECT_EQ(BlamedField(request), "positions.alibi_slopes[0]");

  for (const double scale : {3e38, -1e19}) {
    request = AttendOf(3);
    request.set_softmax_scale(scale);
    AttendCall taken;
    EXPECT_TRUE(taken.Run(*attention_, request).ok());
    request.set_return_log_sum_exp(true);
    EXPECT_EQ(BlamedField(request), "softmax_scale");
  }

  request = AttendOf(3);
  *request.mutable_key_bias() = of_tokens(-kMost, {3});
  AttendCall hidden;
  ASSERT_TRUE(hidden.Run(*attention_, request).ok());
  *request.mutable_positions()->mutable_relative_bias() = of_tokens(-kMost, {heads, 1});
  EXPECT_EQ(BlamedField(request), "positions.relative_bias");
  request.clear_key_bias();
  AttendCall alone;
  EXPECT_TRUE(alone.Run(*attention_, request).ok());
}

TEST_F(HostileInputTest, NonFiniteInputIsRefusedWhenAsked) {
  v1::AttendRequest request = AttendOf(3);
  const float nan = std::nanf("");
  request.mutable_key()->mutable_raw()->replace(4, sizeof(nan), reinterpret_cast<const char*>(&nan),
                                                sizeof(nan));
  request.set_check_finite(true);
  AttendCall refused;
  const grpc::Status status = refused.Run(*attention_, request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).info.reason(), "NON_FINITE_INPUT");
  request.set_check_finite(false);
  AttendCall taken;
  EXPECT_TRUE(taken.Run(*attention_, request).ok());
}

TEST_F(HostileInputTest, OversizedMessageIsResourceExhausted) {
  AttendCall call;
  const grpc::Status status = call.Run(*attention_, AttendOf(100'000));  // 2.4 MB, limit 1 MiB
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(HostileInputTest, HugeRequestIdIsRefusedInFewBytes) {
  AttendCall call;
  const grpc::Status status = call.Run(*attention_, AttendOf(3, std::string(200'000, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_LT(status.error_details().size(), 4096U);
}

class VanishingClientTest : public ServerTest {
 protected:
  void SetUp() override { StartServer(); }
};

TEST_F(VanishingClientTest, QueuedWorkOfALostConnectionIsDropped) {
  engine_->Hold();
  RawClient client(server_->port());
  ASSERT_TRUE(client.connected());
  const std::string message = AttendOf(2).SerializeAsString();
  ASSERT_TRUE(client.SendPreface() &&
              client.BeginCall("/castor.v1.AttentionService/Attend", message,
                               static_cast<uint32_t>(message.size())));
  ASSERT_TRUE(engine_->AwaitWaiting(1));
  client.Vanish();
  EXPECT_TRUE(engine_->AwaitWaiting(0));
  EXPECT_TRUE(AwaitNoCalls());
  engine_->Release();
  ExpectAGoodAnswer();
}

TEST_F(VanishingClientTest, RunningWorkOfALostConnectionHarmsNoOther) {
  engine_->HoldRunning();
  RawClient client(server_->port());
  ASSERT_TRUE(client.connected());
  const std::string message = AttendOf(2).SerializeAsString();
  ASSERT_TRUE(client.SendPreface() &&
              client.BeginCall("/castor.v1.AttentionService/Attend", message,
                               static_cast<uint32_t>(message.size())));
  ASSERT_TRUE(engine_->AwaitRunning());
  client.Vanish();
  ASSERT_TRUE(engine_->AwaitCancels(1));
  engine_->Release();
  EXPECT_TRUE(AwaitNoCalls());
  ExpectAGoodAnswer();
}

TEST_F(VanishingClientTest, MessagesThatNeverEndCostNothingLasting) {
  const int64_t before = ResidentBytes();
  for (int i = 0; i < 500; ++i) {
    RawClient client(server_->port());
    ASSERT_TRUE(client.connected());
    ASSERT_TRUE(client.SendPreface() && client.BeginCall("/castor.v1.AttentionService/Attend",
                                                         std::string(8000, 'x'), 15U << 20));
    client.Vanish();
  }
  ExpectAGoodAnswer();
  ExpectGrowthBelow(64 << 20, before, ResidentBytes());
  EXPECT_EQ(engine_->admitted(), 1);
}

TEST_F(VanishingClientTest, BrokenHttp2EndsItsConnectionOnly) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(10'000, '\xff'),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string(1000, '\x7f')}) {
    RawClient client(server_->port());
    ASSERT_TRUE(client.connected());
    client.Send(bytes);
  }
  ExpectAGoodAnswer();
}

}  // namespace
}  // namespace castor::testing
