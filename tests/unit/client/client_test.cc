#include "client/client.h"

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/tensor.h"
#include "tests/support/temporary_folder.h"

namespace castor::client {
namespace {

using std::chrono::milliseconds;

using Answer = std::function<grpc::Status(int attempt, grpc::ServerContext* context)>;

// An answer that the test sets and gRPC's threads read.
class SharedAnswer {
 public:
  SharedAnswer& operator=(Answer answer) {
    std::lock_guard<std::mutex> lock(mu_);
    answer_ = std::move(answer);
    return *this;
  }
  Answer Get() const {
    std::lock_guard<std::mutex> lock(mu_);
    return answer_;
  }

 private:
  mutable std::mutex mu_;
  Answer answer_ = [](int, grpc::ServerContext*) { return grpc::Status::OK; };
};

// Answers Attend as the test says, by attempt (from 0).
class FakeService : public v1::AttentionService::Service {
 public:
  grpc::Status Attend(grpc::ServerContext* context, const v1::AttendRequest* request,
                      v1::AttendResponse* response) override {
    response->set_request_id(request->request_id());
    *response->mutable_output() = request->query();
    return answer.Get()(attempts++, context);
  }

  SharedAnswer answer;
  std::atomic<int> attempts{0};
};

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(-1);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    ClientOptions options;
    options.target = "127.0.0.1:" + std::to_string(port);
    options.retry.initial_backoff = milliseconds(1);
    client_ = std::make_unique<Client>(options);
  }

  FakeService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

grpc::Status Unavailable() { return {grpc::StatusCode::UNAVAILABLE, "draining"}; }

TEST_F(ClientTest, AnswersComeBackWhole) {
  v1::AttendRequest request;
  request.set_request_id("a");
  // Larger than gRPC's default limit of 4 MiB.
  *request.mutable_query() = MakeTensor(std::vector<float>(2 << 20, 1.5f), {2 << 20});
  const auto response = client_->Attend(request);
  ASSERT_TRUE(response.ok()) << response.error().ToString();
  EXPECT_EQ(response->request_id(), "a");
  EXPECT_EQ(response->output().raw(), request.query().raw());
}

TEST_F(ClientTest, ThePushbackTrailerIsObeyed) {
  service_.answer = [](int, grpc::ServerContext* context) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "-1");
    return Unavailable();
  };
  ASSERT_FALSE(client_->Attend({}).ok());
  EXPECT_EQ(service_.attempts, 1);

  service_.attempts = 0;
  service_.answer = [](int attempt, grpc::ServerContext* context) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "30");
    return attempt == 0 ? Unavailable() : grpc::Status::OK;
  };
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(client_->Attend({}).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(30));
  EXPECT_EQ(service_.attempts, 2);
}

TEST_F(ClientTest, TheDeadlineEndsACallThatHangs) {
  std::mutex mu;
  std::condition_variable released;
  bool done = false;
  service_.answer = [&](int, grpc::ServerContext*) {
    std::unique_lock<std::mutex> lock(mu);
    released.wait(lock, [&] { return done; });
    return grpc::Status::OK;
  };
  const auto response = client_->Attend({}, {.deadline = milliseconds(50)});
  {
    std::lock_guard<std::mutex> lock(mu);
    done = true;
  }
  released.notify_all();
  server_->Shutdown();  // waits for the handler, which uses this stack frame
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.error().code, grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(ClientTest, ManyThreadsShareAClient) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        v1::AttendRequest request;
        request.set_request_id(std::to_string(t) + "/" + std::to_string(i));
        const auto response = client_->Attend(request);
        if (response.ok() && response->request_id() == request.request_id()) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 100);
}

// Two servers behind one name.
class TwoServersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string addresses;
    for (int i = 0; i < 2; ++i) {
      grpc::ServerBuilder builder;
      int port = 0;
      builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
      builder.RegisterService(&services_[i]);
      servers_[i] = builder.BuildAndStart();
      ASSERT_NE(servers_[i], nullptr);
      addresses += (i == 0 ? "ipv4:127.0.0.1:" : ",127.0.0.1:") + std::to_string(port);
    }
    options_.target = addresses;
    options_.retry.initial_backoff = milliseconds(1);
  }

  FakeService services_[2];
  std::unique_ptr<grpc::Server> servers_[2];
  ClientOptions options_;
};

TEST_F(TwoServersTest, TakeTurns) {
  Client client(options_);
  // Either server may be connected first.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((services_[0].attempts == 0 || services_[1].attempts == 0) &&
         std::chrono::steady_clock::now() < patience) {
    ASSERT_TRUE(client.Attend({}).ok());
  }
  const int before[] = {services_[0].attempts, services_[1].attempts};
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client.Attend({}).ok());
  EXPECT_EQ(services_[0].attempts - before[0], 5);
  EXPECT_EQ(services_[1].attempts - before[1], 5);

  servers_[0]->Shutdown();
  for (int i = 0; i < 10; ++i) {
    const auto response = client.Attend({});
    ASSERT_TRUE(response.ok()) << response.error().ToString();
  }
}

TEST_F(TwoServersTest, ServeOneAfterTheOtherWhereTheCallerWantsNoTurns) {
  options_.service_config = "";
  Client client(options_);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.Attend({}).ok());
  EXPECT_TRUE(services_[0].attempts == 0 || services_[1].attempts == 0);
}

TEST(Client, CallsThroughAUnixSocketAndAName) {
  const TemporaryFolder folder;
  grpc::ServerBuilder builder;
  FakeService service;
  int port = 0;
  builder.AddListeningPort("unix:" + folder / "socket", grpc::InsecureServerCredentials());
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  for (const std::string& target :
       {"unix:" + folder / "socket", "dns:///localhost:" + std::to_string(port),
        "localhost:" + std::to_string(port), "ipv4:127.0.0.1:" + std::to_string(port)}) {
    ClientOptions options;
    options.target = target;
    const auto response = Client(options).Attend({});
    EXPECT_TRUE(response.ok()) << target << ": " << response.error().ToString();
  }
}

TEST_F(ClientTest, ADeadlineBeyondAllClocksIsALongOne) {
  EXPECT_TRUE(client_->Attend({}, {.deadline = milliseconds::max()}).ok());
}

}  // namespace
}  // namespace castor::client
