// A gRPC server whose answers leave at times that are known in advance: what a load tester reports
// of it can be compared with the truth.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "client/load/http2/server_connection.h"
#include "client/load/http2/tls_context.h"
#include "tests/bench/load_tester/answers.h"
#include "tests/bench/load_tester/script.h"

namespace castor::bench {

struct ScriptedServerOptions {
  ScriptOptions script{};
  std::string address = "127.0.0.1";  // IPv4
  uint16_t port = 0;                  // 0: any free one
  load::TlsServerOptions tls{};       // without a certificate: plaintext
  int64_t begin_unix_ns = 0;          // what the script counts from; 0: the start
  // Answer every request at once; the script is not asked.
  bool discard = false;
  // Answer AttendRequests of one token with their value, which is what attention gives, and not
  // with the fixed answer: for clients that recompute answers.
  bool one_token = false;
};

struct ScriptedServerCounts {
  int64_t came = 0;
  int64_t good = 0, wrong = 0, refused = 0, silent = 0;  // submitted, or not, as the script said
  // How long after its due time an answer was handed to the socket, ns.
  int64_t late_p50 = 0, late_p99 = 0, late_max = 0;
};

// One thread does it all, in Run(). Stop() may be called on any.
class ScriptedServer {
 public:
  // Listens. Throws std::system_error when it cannot.
  explicit ScriptedServer(const ScriptedServerOptions& options);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  uint16_t port() const { return port_; }
  int64_t begin_unix_ns() const { return begin_unix_ns_; }

  // Serves until Stop().
  void Run();
  // Safe in a signal handler, too.
  void Stop();

  // REQUIRES: Run() has returned.
  ScriptedServerCounts Counts() const;

 private:
  struct Due {
    int64_t at_ns;
    uint64_t order;  // of arrival: equal times leave in that order
    int socket;
    uint64_t connection;  // a socket's number may have been given to another since
    int32_t stream;
    Method method;
    Answer answer;
    std::string message;  // empty: the fixed one
    bool operator>(const Due& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };
  struct Client {
    uint64_t number = 0;
    std::unique_ptr<load::ServerConnection> connection;
    bool watched_for_room = false;
    bool dirty = false;  // to be flushed
  };

  int64_t Now() const;  // from the begin
  void Accept();
  void OnRequest(int socket, int32_t stream, Method method, std::string_view body);
  void SendDue();
  void Send(Client& client, const Due& due);
  void SetTimer();
  void MarkDirty(int socket, Client& client);
  void FlushAll();
  void Watch(int socket, uint32_t events, int operation) const;

  const ScriptedServerOptions options_;
  const load::SslContext tls_;  // null: plaintext
  const Answers answers_;
  Script script_;
  int listener_ = -1, epoll_ = -1, timer_ = -1, stop_ = -1;
  uint16_t port_ = 0;
  int64_t begin_unix_ns_ = 0, begin_monotonic_ns_ = 0;

  std::map<int, Client> clients_;  // by socket
  std::vector<int> dirty_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  int64_t timer_at_ns_ = -1;
  uint64_t connections_ = 0;
  ScriptedServerCounts counts_;
  std::vector<int64_t> late_;  // how many answers were so many microseconds late; the last: more
};

}  // namespace castor::bench
