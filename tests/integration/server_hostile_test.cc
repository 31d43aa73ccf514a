// Requests from hostile and careless callers, and callers that vanish, against a whole server with
// the real engine on the CPU. After each attack the server must answer a good request as it did
// before.

#include <chrono>
#include <cmath>
#include <functional>
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
    expected_ = Attend(AttendOf(3)).output().raw();
  }

  void TearDown() override {
    EXPECT_EQ(Attend(AttendOf(3)).output().raw(), expected_);
    EXPECT_TRUE(AwaitNoBytes());
    EXPECT_EQ(server_->engine().stats().load.inflight_requests, 0);
  }

  // The field that the server blames. If the server does not refuse with INVALID_ARGUMENT, returns
  // "" and fails the test.
  std::string BlamedField(const v1::AttendRequest& request) {
    const grpc::Status status = Try(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    const Details details = DetailsOf(status);
    if (details.bad_request.field_violations_size() == 0) return "";
    return details.bad_request.field_violations(0).field();
  }

  std::string expected_;  // the good request's output
};

// resolve_test.cc has every fault that the engine refuses; here are those that only the wire can
// express, and one of each kind.
TEST_F(HostileInputTest, FaultsAreRefusedByTheirField) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const struct {
    const char* field;
    std::function<void(v1::AttendRequest&)> edit;
  } kCases[] = {
      {"value", [](auto& r) { r.mutable_value()->mutable_raw()->pop_back(); }},
      {"key", [](auto& r) { r.mutable_key()->mutable_raw()->append("x"); }},
      {"query", [](auto& r) { r.mutable_query()->clear_raw(); }},
      {"value", [](auto& r) { r.clear_value(); }},
      {"query", [](auto& r) { r.mutable_query()->set_shape(0, 0); }},
      {"query", [](auto& r) { r.mutable_query()->set_shape(1, -1); }},
      {"query", [](auto& r) { r.mutable_query()->set_shape(2, kMost); }},
      {"query", [](auto& r) { r.mutable_query()->set_dtype(v1::DATA_TYPE_UNSPECIFIED); }},
      {"query", [](auto& r) { r.mutable_query()->set_dtype(static_cast<v1::DataType>(77)); }},
      {"key", [](auto& r) { r.mutable_key()->set_dtype(v1::FLOAT16); }},
      {"query_lengths", [](auto& r) { r.add_query_lengths(4); }},
      {"query_lengths", [](auto& r) { r.add_query_lengths(kMost), r.add_query_lengths(4); }},
      {"softmax_scale", [](auto& r) { r.set_softmax_scale(std::nan("")); }},
      {"positions.query", [](auto& r) { r.mutable_positions()->add_query(kMost); }},
      {"positions.window.left",
       [](auto& r) { r.mutable_positions()->mutable_window()->set_left(-2); }},
      {"positions.alibi_slopes", [](auto& r) { r.mutable_positions()->add_alibi_slopes(3e38f); }},
      {"softcap", [](auto& r) { r.set_softcap(-1); }},
      {"value_dim", [](auto& r) { r.set_value_dim(1); }},
      {"key_bias.raw",
       [](auto& r) {
         r.mutable_key_bias()->set_dtype(v1::FLOAT32);
         r.mutable_key_bias()->add_shape(3);
       }},
  };
  for (const auto& [field, edit] : kCases) {
    v1::AttendRequest request = AttendOf(3);
    edit(request);
    const std::string blamed = BlamedField(request);
    EXPECT_TRUE(blamed.starts_with(field)) << blamed << " instead of " << field;
  }
  v1::AttendRequest ranks = AttendOf(3);
  for (int i = 0; i < 1000; ++i) ranks.mutable_query()->add_shape(1);
  EXPECT_TRUE(BlamedField(ranks).starts_with("query"));
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

TEST_F(HostileInputTest, NonFiniteInputIsRefusedWhenAsked) {
  v1::AttendRequest request = AttendOf(3);
  const float nan = std::nanf("");
  request.mutable_key()->mutable_raw()->replace(4, sizeof(nan), reinterpret_cast<const char*>(&nan),
                                                sizeof(nan));
  request.set_check_finite(true);
  const grpc::Status status = Try(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).info.reason(), "NON_FINITE_INPUT");
  request.set_check_finite(false);
  Attend(request);
}

TEST_F(HostileInputTest, OversizedMessageIsResourceExhausted) {
  const grpc::Status status = Try(AttendOf(100'000));  // 2.4 MB, limit 1 MiB
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(HostileInputTest, HugeRequestIdIsRefusedInFewBytes) {
  const grpc::Status status = Try(AttendOf(3, std::string(200'000, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_LT(status.error_details().size(), 4096U);
}

class VanishingClientTest : public ServerTest {
 protected:
  void SetUp() override { StartServer(); }
};

TEST_F(VanishingClientTest, WorkOfALostConnectionIsDroppedAndHarmsNoOther) {
  for (const bool running : {false, true}) {
    running ? engine_->HoldRunning() : engine_->Hold();
    RawClient client(server_->port());
    ASSERT_TRUE(client.connected());
    const std::string message = AttendOf(2).SerializeAsString();
    ASSERT_TRUE(client.SendPreface() &&
                client.BeginCall("/castor.v1.AttentionService/Attend", message,
                                 static_cast<uint32_t>(message.size())));
    ASSERT_TRUE(running ? engine_->AwaitRunning() : engine_->AwaitWaiting(1));
    client.Vanish();
    EXPECT_TRUE(running ? engine_->AwaitCancels(2) : engine_->AwaitWaiting(0));
    if (running) engine_->Release();
    EXPECT_TRUE(AwaitNoCalls());
    engine_->Release();
    ExpectAGoodAnswer();
  }
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
