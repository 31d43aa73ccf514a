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
#include <string>
#include <thread>
#include <vector>

#include "client/load/results/histogram.h"
#include "tests/bench/load_tester/script.h"

namespace castor::bench {

struct ScriptedServerOptions {
  ScriptOptions script{};
  int port = 0;               // 0: any free one
  int64_t begin_unix_ns = 0;  // what the script counts from; 0: the start
  // Answer every request at once; the script is not asked.
  bool discard = false;
  // What GetServerInfo says of its metrics.
  std::string metrics_address{};
};

enum class Method { kAttend, kEncode, kServerInfo, kUnknown };

struct ScriptedServerCounts {
  int64_t came = 0;
  int64_t good = 0, wrong = 0, refused = 0, silent = 0;  // answered, or not, as the script said
  // How long after its due time an answer was handed to gRPC, ns.
  int64_t late_p50 = 0, late_p99 = 0;
};

// Answers Attend, Encode and GetServerInfo. AttendRequests of one token are answered with their
// value, which is what attention gives; larger ones and Encode with a fixed small answer.
class ScriptedServer {
 public:
  // Listens and serves. Throws std::runtime_error when it cannot.
  explicit ScriptedServer(const ScriptedServerOptions& options);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int64_t begin_unix_ns() const { return begin_unix_ns_; }

  ScriptedServerCounts counts() const;

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

  const ScriptedServerOptions options_;
  int port_ = 0;
  int64_t begin_unix_ns_ = 0, begin_monotonic_ns_ = 0;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;

  mutable std::mutex mu_;
  std::condition_variable changed_;
  Script script_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<std::unique_ptr<Call>> silent_;  // never answered
  ScriptedServerCounts counts_;
  load::Histogram late_;
  bool stop_ = false;

  std::thread server_thread_, due_thread_;
};

}  // namespace castor::bench
