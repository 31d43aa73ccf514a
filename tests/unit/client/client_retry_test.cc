// The client's retries, against services whose connections break at chosen moments.

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/unit/client/cutting_proxy.h"

namespace castor::client {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Delay = std::optional<milliseconds>;

// An error in castor-server's form.
grpc::Status ErrorOf(grpc::StatusCode code, const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_domain("castor");
  info.set_reason(reason);
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return {code, reason, details.SerializeAsString()};
}

// Runs `then` after a call has arrived and taken effect, before it is answered.
class Moment {
 public:
  void Set(std::function<grpc::Status(int attempt)> then) {
    std::lock_guard<std::mutex> lock(mu_);
    then_ = std::move(then);
    attempts_ = 0;
  }
  grpc::Status Pass() {
    std::lock_guard<std::mutex> lock(mu_);
    return then_(attempts_++);
  }
  int attempts() const {
    std::lock_guard<std::mutex> lock(mu_);
    return attempts_;
  }

 private:
  mutable std::mutex mu_;
  std::function<grpc::Status(int)> then_ = [](int) { return grpc::Status::OK; };
  int attempts_ = 0;
};

class FakeAttention : public v1::AttentionService::Service {
 public:
  grpc::Status Attend(grpc::ServerContext*, const v1::AttendRequest*,
                      v1::AttendResponse*) override {
    return moment.Pass();
  }
  grpc::Status AttendStream(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>* stream) override {
    if (const grpc::Status status = moment.Pass(); !status.ok()) return status;
    v1::AttendRequest request;
    while (stream->Read(&request)) {
      v1::AttendResponse response;
      response.set_request_id(request.request_id());
      stream->Write(response);
    }
    return grpc::Status::OK;
  }
  Moment moment;
};

// Keeps regions like castor-server.
class FakeRegions : public v1::SharedMemoryService::Service {
 public:
  grpc::Status RegisterSharedMemory(grpc::ServerContext*,
                                    const v1::RegisterSharedMemoryRequest* request,
                                    v1::RegisterSharedMemoryResponse*) override {
    v1::SharedMemoryRegion region;
    region.set_name(request->name());
    region.set_key(request->key());
    region.set_offset(request->offset());
    region.set_size(request->size());
    if (!Add(region)) return ErrorOf(grpc::StatusCode::FAILED_PRECONDITION, "REGION_EXISTS");
    return moment.Pass();
  }
  grpc::Status UnregisterSharedMemory(grpc::ServerContext*,
                                      const v1::UnregisterSharedMemoryRequest* request,
                                      v1::UnregisterSharedMemoryResponse*) override {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (regions_.erase(request->name()) == 0) {
        return ErrorOf(grpc::StatusCode::NOT_FOUND, "REGION_NOT_FOUND");
      }
    }
    return moment.Pass();
  }
  grpc::Status ListSharedMemory(grpc::ServerContext*, const v1::ListSharedMemoryRequest*,
                                v1::ListSharedMemoryResponse* response) override {
    std::lock_guard<std::mutex> lock(mu_);
    ++lists;
    for (const auto& [name, region] : regions_) *response->add_regions() = region;
    return grpc::Status::OK;
  }

  bool Add(const v1::SharedMemoryRegion& region) {
    std::lock_guard<std::mutex> lock(mu_);
    return regions_.emplace(region.name(), region).second;
  }
  void Clear() {
    std::lock_guard<std::mutex> lock(mu_);
    regions_.clear();
  }

  Moment moment;
  std::atomic<int> lists = 0;

 private:
  std::mutex mu_;
  std::map<std::string, v1::SharedMemoryRegion> regions_;
};

class ClientRetryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&attention_);
    builder.RegisterService(&regions_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    proxy_ = std::make_unique<CuttingProxy>(port);
    options_.target = proxy_->address();
    options_.retry.initial_backoff = milliseconds(1);
    client_ = std::make_unique<Client>(options_);
    auto memory = SharedMemory::Create(64);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = std::make_unique<SharedMemory>(*std::move(memory));
    *with_output_.mutable_output() = memory_->Ref(0, 64);
  }

  // Breaks the connection once the first call has taken effect.
  std::function<grpc::Status(int)> CutTheFirst() {
    return [this](int attempt) {
      if (attempt == 0) proxy_->Cut();
      return grpc::Status::OK;
    };
  }

  FakeAttention attention_;
  FakeRegions regions_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<CuttingProxy> proxy_;
  ClientOptions options_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<SharedMemory> memory_;
  v1::AttendRequest with_output_;
};

TEST_F(ClientRetryTest, ACallWithoutOutputIsMadeAgainAfterTheConnectionBroke) {
  attention_.moment.Set(CutTheFirst());
  const auto response = client_->Attend({});
  ASSERT_TRUE(response.ok()) << response.error().ToString();
  EXPECT_EQ(attention_.moment.attempts(), 2);
}

TEST_F(ClientRetryTest, ACallWithOutputIsNotRepeatedAfterItWasSent) {
  attention_.moment.Set(CutTheFirst());
  const auto response = client_->Attend(with_output_);
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.error().code, grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(response.error().reason, "") << "so the caller knows that nobody knows";
  EXPECT_EQ(response.error().attempts, 1);
  EXPECT_EQ(attention_.moment.attempts(), 1);
}

TEST_F(ClientRetryTest, AProxysErrorDoesNotRepeatACallWithOutput) {
  // A proxy's error, for example, with its own reason or none.
  attention_.moment.Set([](int) {
    google::rpc::ErrorInfo info;
    info.set_domain("mesh.example");
    info.set_reason("DRAINING");
    google::rpc::Status details;
    details.add_details()->PackFrom(info);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "upstream", details.SerializeAsString());
  });
  EXPECT_FALSE(client_->Attend(with_output_).ok());
  EXPECT_EQ(attention_.moment.attempts(), 1);
  attention_.moment.Set([](int) { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"); });
  EXPECT_FALSE(client_->Attend(with_output_).ok());
  EXPECT_EQ(attention_.moment.attempts(), 1);
}

TEST_F(ClientRetryTest, ADrainingServerHasNotTakenTheCall) {
  attention_.moment.Set([](int attempt) {
    return attempt < 2 ? ErrorOf(grpc::StatusCode::UNAVAILABLE, "DRAINING") : grpc::Status::OK;
  });
  const auto response = client_->Attend(with_output_);
  ASSERT_TRUE(response.ok()) << response.error().ToString();
  EXPECT_EQ(attention_.moment.attempts(), 3);
}

TEST_F(ClientRetryTest, BeforeAConnectionStandsEveryCallIsTriedAgain) {
  // The first backoff is long enough for gRPC to reconnect.
  proxy_->RefuseNext(1);
  options_.retry = {.initial_backoff = milliseconds(300), .multiplier = 1};
  Client client(options_);
  const auto response = client.Attend(with_output_);
  ASSERT_TRUE(response.ok()) << response.error().ToString();
  EXPECT_EQ(attention_.moment.attempts(), 1);

  // Also after an idle connection was lost, whether or not the client has noticed: a call never
  // arrives twice.
  proxy_->Cut();
  (void)client.Attend(with_output_);
  EXPECT_LE(attention_.moment.attempts(), 2);
}

// The client makes more attempts than any fixed number.
TEST_F(ClientRetryTest, ACallOutlivesAServersRestart) {
  constexpr int kDown = 20;
  std::vector<int> told;
  options_.retry.max_backoff = milliseconds(1);
  options_.on_retry = [&](const Error& error) {
    EXPECT_EQ(error.code, grpc::StatusCode::UNAVAILABLE);
    told.push_back(error.attempts);
  };
  Client client(options_);
  const auto down = [](int attempt) {
    return attempt < kDown ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "starting")
                           : grpc::Status::OK;
  };
  attention_.moment.Set(down);
  const auto response = client.Attend({});
  ASSERT_TRUE(response.ok()) << response.error().ToString();
  EXPECT_EQ(attention_.moment.attempts(), kDown + 1);
  EXPECT_EQ(told.size(), static_cast<size_t>(kDown));

  attention_.moment.Set(down);
  int made = 0;
  const auto stream = client.AttendStream([&](v1::AttendRequest*) { return made++ < 3; });
  int answers = 0;
  while (const auto answer = stream->Next()) answers += answer->ok() ? 1 : 0;
  EXPECT_EQ(answers, 3);
  EXPECT_EQ(attention_.moment.attempts(), kDown + 1);
}

TEST_F(ClientRetryTest, AStreamTriesUntilItsDeadlineAndNoLonger) {
  attention_.moment.Set(
      [](int) { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "starting"); });
  bool made = false;
  const auto stream =
      client_->AttendStream([&](v1::AttendRequest*) { return !std::exchange(made, true); },
                            {.deadline = milliseconds(500)});
  const auto begin = std::chrono::steady_clock::now();
  const auto answer = stream->Next();
  ASSERT_TRUE(answer.has_value() && !answer->ok());
  EXPECT_EQ(answer->error().code, grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(answer->error().message, "starting");
  EXPECT_GT(answer->error().attempts, 5);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(ClientRetryTest, AFailedConnectionIsReportedWithItsCause) {
  proxy_->RefuseNext(1 << 30);
  const auto response = client_->Attend(with_output_, {.deadline = milliseconds(1000)});
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.error().code, grpc::StatusCode::UNAVAILABLE);
  EXPECT_GT(response.error().attempts, 5);
  EXPECT_THAT(response.error().message, HasSubstr("connect"));
  EXPECT_EQ(attention_.moment.attempts(), 0);
}

TEST_F(ClientRetryTest, TheFirstErrorIsReported) {
  attention_.moment.Set([this](int attempt) {
    if (attempt > 0) proxy_->RefuseNext(1 << 30);
    if (attempt > 0) proxy_->Cut();
    return ErrorOf(grpc::StatusCode::UNAVAILABLE, attempt == 0 ? "DRAINING" : "OTHER");
  });
  auto response = client_->Attend({}, {.deadline = milliseconds(1000)});
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.error().message, "DRAINING");
  EXPECT_EQ(response.error().reason, "") << "of the last attempt nobody knows what it did";
  EXPECT_GT(response.error().attempts, 5);

  // A server's own error stays.
  proxy_->RefuseNext(0);
  Client client(options_);
  attention_.moment.Set([](int attempt) {
    return attempt == 0 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "first")
                        : ErrorOf(grpc::StatusCode::INTERNAL, "INTERNAL");
  });
  response = client.Attend({});
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.error().reason, "INTERNAL");
}

TEST_F(ClientRetryTest, ARegistrationWhoseAnswerWasLostIsFoundAgain) {
  regions_.moment.Set(CutTheFirst());
  const auto registered = client_->RegisterSharedMemory(*memory_);
  EXPECT_TRUE(registered.ok()) << registered.error().ToString();
  EXPECT_EQ(regions_.lists, 1);
}

TEST_F(ClientRetryTest, ANameThatAnotherHasTakenStaysAnError) {
  v1::SharedMemoryRegion other;
  other.set_name(memory_->name());
  other.set_key("/another");
  other.set_size(64);
  ASSERT_TRUE(regions_.Add(other));
  auto registered = client_->RegisterSharedMemory(*memory_);
  ASSERT_FALSE(registered.ok());
  EXPECT_EQ(registered.error().reason, "REGION_EXISTS");
  EXPECT_EQ(regions_.lists, 0) << "a first try cannot have met itself";

  // The same on a retry: the first attempt registers the region, its answer is lost, and another
  // client takes the name.
  regions_.Clear();
  regions_.moment.Set([&](int) {
    regions_.Clear();
    EXPECT_TRUE(regions_.Add(other));
    proxy_->Cut();
    return grpc::Status::OK;
  });
  registered = client_->RegisterSharedMemory(*memory_);
  ASSERT_FALSE(registered.ok());
  EXPECT_EQ(registered.error().reason, "REGION_EXISTS");
  EXPECT_EQ(regions_.lists, 1);
}

TEST_F(ClientRetryTest, UnregisteringWhoseAnswerWasLostHasSucceeded) {
  ASSERT_TRUE(client_->RegisterSharedMemory(*memory_).ok());
  regions_.moment.Set(CutTheFirst());
  const auto response = client_->UnregisterSharedMemory(memory_->name());
  EXPECT_TRUE(response.ok()) << response.error().ToString();
  const auto again = client_->UnregisterSharedMemory(memory_->name());
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().reason, "REGION_NOT_FOUND");
}

constexpr milliseconds kLong{1'000'000};

Error Unavailable(int attempts, std::optional<milliseconds> retry_after = std::nullopt) {
  Error error;
  error.code = grpc::StatusCode::UNAVAILABLE;
  error.attempts = attempts;
  error.retry_after = retry_after;
  return error;
}

TEST(DelayBeforeRetry, OnlyUnavailableIsTriedAgain) {
  for (int code = 0; code <= static_cast<int>(grpc::StatusCode::UNAUTHENTICATED); ++code) {
    Error error = Unavailable(1);
    error.code = static_cast<grpc::StatusCode>(code);
    EXPECT_EQ(DelayBeforeRetry({}, error, std::nullopt, kLong, 0.5).has_value(),
              error.code == grpc::StatusCode::UNAVAILABLE)
        << code;
  }
}

TEST(DelayBeforeRetry, FollowsThePolicyTheServerAndTheDeadline) {
  const RetryPolicy six = {.max_attempts = 6, .max_backoff = milliseconds(500)};
  const struct {
    const char* what;
    RetryPolicy policy;
    Error error;
    std::optional<std::string_view> pushback;
    milliseconds remaining;
    double random;
    Delay delay;
  } kCases[] = {
      {"first", six, Unavailable(1), {}, kLong, 1, milliseconds(100)},
      {"doubled", six, Unavailable(3), {}, kLong, 1, milliseconds(400)},
      {"at the bound", six, Unavailable(5), {}, kLong, 1, milliseconds(500)},
      {"the last attempt", six, Unavailable(6), {}, kLong, 1, std::nullopt},
      {"jitter", six, Unavailable(1), {}, kLong, 0, milliseconds(50)},
      {"no bound on attempts", {}, Unavailable(1000), {}, kLong, 1, milliseconds(2000)},
      {"off", {.max_attempts = 1}, Unavailable(1), {}, kLong, 1, std::nullopt},
      {"at the deadline", {}, Unavailable(1), {}, milliseconds(100), 1, std::nullopt},
      {"before it", {}, Unavailable(1), {}, milliseconds(101), 1, milliseconds(100)},
      {"after it", {}, Unavailable(1), {}, milliseconds(-5), 1, std::nullopt},
      {"pushback", {}, Unavailable(1), "777", kLong, 1, milliseconds(777)},
      {"pushback of 0", {}, Unavailable(1), "0", kLong, 1, milliseconds(0)},
      {"again: it must not spin", {}, Unavailable(2), "0", kLong, 1, milliseconds(100)},
      {"retry_after", {}, Unavailable(1, milliseconds(700)), {}, kLong, 1, milliseconds(700)},
      {"a short one", {}, Unavailable(1, milliseconds(7)), {}, kLong, 1, milliseconds(100)},
      {"pushback first", {}, Unavailable(1, milliseconds(7)), "3", kLong, 1, milliseconds(3)},
  };
  for (const auto& it : kCases) {
    EXPECT_EQ(DelayBeforeRetry(it.policy, it.error, it.pushback, it.remaining, it.random), it.delay)
        << it.what;
  }
  for (const char* never : {"-1", "", "soon", "5ms", "99999999999"}) {
    EXPECT_EQ(DelayBeforeRetry({}, Unavailable(1), never, kLong, 1), std::nullopt) << never;
  }
}

}  // namespace
}  // namespace castor::client
