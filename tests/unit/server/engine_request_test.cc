// EngineRequest without gRPC calls: a shell that records what it is told, over an engine that
// answers when a test says so.

#include "server/services/engine_request.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "castor/v1/attention.pb.h"
#include "inference/grpc_service.pb.h"
#include "server/oip/infer_request.h"
#include "server/services/engine_protocols.h"
#include "tests/support/engine_of_models.h"
#include "tests/support/sanitizer.h"

namespace castor::server {
namespace {

constexpr Ticket kTicket = 7;
constexpr char kValue[] = "values to come back again";  // 26 bytes: too long to be inline
constexpr int64_t kValueBytes = sizeof(kValue);

// Admits each request and answers with its `value` when told to.
class ScriptedEngine final : public EngineOfModels {
 public:
  absl::StatusOr<Ticket> Submit(AttentionRequest request, AttentionCompletion done) override {
    call = request.call;
    AttentionResult result;
    result.output.dtype = request.value.dtype;
    result.output.shape = request.value.shape;
    result.output.data = *pool_->Allocate(static_cast<size_t>(request.value.size_bytes()));
    std::byte* to = result.output.data.data();
    for (const auto piece : request.value.pieces) {
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
    result.report.kernel.kernel = Clustered{};
    result_ = std::move(result);
    done_ = std::move(done);
    request = AttentionRequest();
    if (during_submit) during_submit();
    return kTicket;
  }
  absl::StatusOr<Ticket> Submit(EncodeRequest, EncodeCompletion) override { return kTicket; }
  absl::StatusOr<std::shared_ptr<void>> Reserve(const std::string&, int64_t) override {
    return nullptr;
  }
  void Cancel(Ticket ticket) override {
    EXPECT_EQ(ticket, kTicket);
    ++cancels;
  }

  void SetTenants(std::map<std::string, TenantTerms>) override {}
  EngineInfo info() const override { return {}; }
  const EngineOptions& options() const override { return options_; }
  EngineStats stats() const override { return {}; }
  Progress progress() const override { return {}; }
  bool healthy() const override { return true; }
  bool Drain(TimePoint) override { return true; }

  void Answer() { std::move(done_)(std::move(result_)); }
  void Answer(const absl::Status& error) { std::move(done_)(error); }

  std::function<void()> during_submit;  // after admission, before anybody has the ticket
  CallContext call;
  std::atomic<int> cancels = 0;

 private:
  const EngineOptions options_;
  std::shared_ptr<HostPool> pool_ = MakeHostPool(SystemMemory(), 1 << 20);
  AttentionResult result_;
  AttentionCompletion done_;
};

// A shell without a call.
struct Mailbox final : RequestShell {
  void Deliver(grpc::ByteBuffer bytes) override {
    ++told;
    answer = std::move(bytes);
  }
  void Refuse(const absl::Status& status) override {
    ++told;
    error = status;
  }

  std::atomic<int> told = 0;
  grpc::ByteBuffer answer;
  absl::Status error;
};

v1::AttendRequest Attend() {
  v1::AttendRequest request;
  request.set_request_id("r-1");
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    tensor->set_dtype(v1::FLOAT16);
    for (const int64_t dimension : {kValueBytes / 2, int64_t{1}, int64_t{1}}) {
      tensor->add_shape(dimension);
    }
    tensor->set_raw(kValue, sizeof(kValue));
  }
  return request;
}

grpc::ByteBuffer Bytes(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

template <typename Message>
Message Parse(const grpc::ByteBuffer& bytes) {
  grpc::Slice slice;
  EXPECT_TRUE(bytes.DumpToSingleSlice(&slice).ok());
  Message message;
  EXPECT_TRUE(message.ParseFromArray(slice.begin(), static_cast<int>(slice.size())));
  return message;
}

class EngineRequestTest : public ::testing::Test {
 protected:
  RequestParts Parts() { return {engine_, regions_, metrics_, decoding_}; }
  RequestOrigin Origin() const { return {received_, received_ + std::chrono::hours(1), "tenant"}; }

  ScriptedEngine engine_;
  Metrics metrics_{engine_};
  SharedMemory regions_{1};
  DecodeBudget decoding_{engine_.options(), 1 << 20};
  const TimePoint received_ = std::chrono::steady_clock::now();
  Mailbox mailbox_;
  EngineRequest<AttendProtocol> request_{Parts(), mailbox_};
  grpc::ByteBuffer message_ = Bytes(Attend());
};

// gRPC counts a message's bytes until they are let go.
TEST_F(EngineRequestTest, EmptiesTheMessageOnceTheEngineHasIt) {
  request_.Start(&message_, Origin());
  EXPECT_EQ(message_.Length(), 0u);

  inference::ModelInferRequest infer;
  infer.set_model_name("castor_attention");
  for (const char* name : {"query", "key", "value"}) {
    auto* const input = infer.add_inputs();
    input->set_name(name);
    input->set_datatype("FP16");
    for (const int64_t size : {kValueBytes / 2, int64_t{1}, int64_t{1}}) input->add_shape(size);
    infer.add_raw_input_contents(kValue, sizeof(kValue));
  }
  const oip::Catalogue catalogue(engine_);
  oip::InferRequest request(Parts(), mailbox_, catalogue);
  grpc::ByteBuffer message = Bytes(infer);
  request.Start(&message, Origin());
  EXPECT_EQ(mailbox_.told, 0) << mailbox_.error;
  EXPECT_EQ(message.Length(), 0u);
  engine_.Answer();
  EXPECT_EQ(mailbox_.told, 1);
  EXPECT_TRUE(mailbox_.error.ok()) << mailbox_.error;
}

TEST_F(EngineRequestTest, DeliversTheAnswerOnce) {
  request_.Start(&message_, Origin());
  EXPECT_EQ(mailbox_.told, 0);
  EXPECT_EQ(engine_.call.request_id, "r-1");
  EXPECT_EQ(engine_.call.received, received_);
  EXPECT_EQ(engine_.call.deadline, received_ + std::chrono::hours(1));
  EXPECT_EQ(engine_.call.tenant, "tenant");
  EXPECT_EQ(request_.subject().kernel, KernelName::kVanilla) << "the one asked for";
  engine_.Answer();
  EXPECT_EQ(mailbox_.told, 1);
  EXPECT_TRUE(mailbox_.error.ok()) << mailbox_.error;
  const auto answer = Parse<v1::AttendResponse>(mailbox_.answer);
  EXPECT_EQ(answer.request_id(), "r-1");
  EXPECT_EQ(answer.output().raw(), std::string(kValue, sizeof(kValue)));
  EXPECT_GT(answer.timing().total_us(), 0);
  EXPECT_EQ(request_.subject().kernel, KernelName::kClustered) << "the one that ran";
  EXPECT_EQ(engine_.cancels, 0);
}

TEST_F(EngineRequestTest, CancelledBeforeItStarts) {
  request_.Cancel();
  request_.Start(&message_, Origin());
  EXPECT_EQ(engine_.cancels, 1);
  engine_.Answer(MakeError(Reason::kCancelled, "cancelled"));
  EXPECT_EQ(mailbox_.told, 1);
  EXPECT_EQ(ReasonOf(mailbox_.error), Reason::kCancelled);
}

TEST_F(EngineRequestTest, CancelledWhileItRuns) {
  request_.Start(&message_, Origin());
  request_.Cancel();
  request_.Cancel();
  EXPECT_EQ(engine_.cancels, 1);
  engine_.Answer();  // with its batch
  EXPECT_EQ(mailbox_.told, 1);
  EXPECT_EQ(ReasonOf(mailbox_.error), Reason::kCancelled) << "the result was dropped";
  EXPECT_EQ(mailbox_.answer.Length(), 0u);
}

TEST_F(EngineRequestTest, IsToldOfOnceHoweverStartCompletionAndCancelRace) {
  for (int i = 0; i < Scaled(2000); ++i) {
    Mailbox mailbox;
    EngineRequest<AttendProtocol> request(Parts(), mailbox);
    grpc::ByteBuffer message = Bytes(Attend());
    engine_.cancels = 0;
    std::thread completion;
    std::thread canceller([&] { request.Cancel(); });
    engine_.during_submit = [&] { completion = std::thread([&] { engine_.Answer(); }); };
    request.Start(&message, Origin());
    canceller.join();
    completion.join();
    ASSERT_EQ(mailbox.told, 1);
    ASSERT_EQ(engine_.cancels, 1);
    ASSERT_NE(mailbox.error.ok(), mailbox.answer.Length() == 0);
  }
}

}  // namespace
}  // namespace castor::server
