// What one small attention costs on a server with nothing else to do.

#include <memory>

#include "tests/bench/load/outcomes.h"
#include "tests/bench/load/requests.h"
#include "tests/bench/load/scenario.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {
namespace {

constexpr double kMaxAddedUs = 10;
constexpr int kTurn = 500;  // calls to one server before it is the other's turn

struct IdleServer {
  ServerProcess process;
  Caller caller;
  std::vector<double> us;
  Codes codes;

  explicit IdleServer(const std::string& program)
      : process(program, {}), caller(process.address()) {}

  void Take(const grpc::ByteBuffer& request, bool count) {
    for (int i = 0; i < kTurn; ++i) {
      const auto begin = Clock::now();
      const Answer answer =
          caller.CallAndWait(kAttend, request, {.deadline = begin + std::chrono::seconds(10)});
      if (!count) continue;
      us.push_back(1000 * Milliseconds(answer.ended - begin));
      Count(answer.code, answer.reason, codes);
    }
  }
};

}  // namespace

void IdleCost(const Settings& settings, Report& report) {
  std::vector<std::unique_ptr<IdleServer>> servers;
  servers.push_back(std::make_unique<IdleServer>(settings.server));
  if (!settings.baseline.empty()) {
    servers.push_back(std::make_unique<IdleServer>(settings.baseline));
  }
  const grpc::ByteBuffer request = BytesOf(AttendMessage({.tokens = 16}, 1));
  for (const auto& server : servers) server->Take(request, /*count=*/false);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      settings.phase * static_cast<double>(servers.size()));
  // Who comes second meets another machine: take turns at that, too.
  for (size_t turn = 0; Clock::now() < end; ++turn) {
    for (size_t i = 0; i < servers.size(); ++i) {
      servers[(turn + i) % servers.size()]->Take(request, /*count=*/true);
    }
  }

  const auto note = [&](const std::string& what, const IdleServer& server) {
    report.Note(what + ": median, p99; answers", Figure(Quantile(server.us, 0.5)) + ", " +
                                                     Figure(Quantile(server.us, 0.99), "µs") +
                                                     "; " + TextOf(server.codes));
  };
  note("one small attention", *servers[0]);
  if (servers.size() < 2) return;
  note("the baseline's", *servers[1]);
  report.AtMost("median above the baseline's",
                Quantile(servers[0]->us, 0.5) - Quantile(servers[1]->us, 0.5), kMaxAddedUs, "µs");
}

}  // namespace castor::bench
