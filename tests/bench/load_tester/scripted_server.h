// A gRPC server whose answers leave at times that are known in advance: what a load tester reports
// of it can be compared with the truth.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace castor::bench {

// The server's handling of each request is known in advance, so a client's correct measurements can
// be computed.
struct ScriptOptions {
  int64_t service_ns = 0;  // from a request to its answer

  // No answer leaves in [k * stall_every_ns, k * stall_every_ns + stall_ns), k = 1, 2, ..., counted
  // from the begin: answers that are due then leave at its end. 0: no stalls.
  int64_t stall_ns = 0, stall_every_ns = 0;

  // Shares of the requests, 0..1, drawn by `seed`.
  double refuse_share = 0;  // RESOURCE_EXHAUSTED at once
  double wrong_share = 0;   // an answer with other bytes
  uint64_t seed = 1;
};

// Answers Attend, Encode and GetServerInfo. AttendRequests of one token are answered with their
// value, which is what attention gives; larger ones and Encode with a fixed small answer.
class ScriptedServer {
 public:
  // Listens and serves. Throws std::runtime_error when it cannot.
  explicit ScriptedServer(const ScriptOptions& script);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int64_t begin_unix_ns() const { return begin_unix_ns_; }

  int64_t came() const;  // Attend and Encode

 private:
  struct Call;
  struct Due {
    int64_t at_ns;
    uint64_t order;  // of arrival: equal times leave in that order
    Call* call;
    bool operator>(const Due& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };

  int64_t Now() const;  // from the begin
  void AwaitCall();
  void Serve();
  void OnRequest(Call* call);
  void Answer(Call* call);
  void SendDue();
  int64_t DepartureOf(int64_t arrival_ns, bool refused) const;

  const ScriptOptions script_;
  int port_ = 0;
  int64_t begin_unix_ns_ = 0, begin_monotonic_ns_ = 0;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  int64_t came_ = 0;
  bool stop_ = false;

  std::thread server_thread_, due_thread_;
};

}  // namespace castor::bench
