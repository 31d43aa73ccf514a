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

  explicit IdleServer(const std::string& program)
      : process(program, {}), caller(process.address()) {}
};

// What one program's servers took.
struct Times {
  std::string program;
  std::vector<double> us = {};       // of each call
  std::vector<double> medians = {};  // of each round's server
  Codes codes = {};
};

void Take(IdleServer& server, const grpc::ByteBuffer& request, Times* times) {
  for (int i = 0; i < kTurn; ++i) {
    const auto begin = Clock::now();
    const Answer answer =
        server.caller.CallAndWait(kAttend, request, {.deadline = begin + std::chrono::seconds(10)});
    if (times == nullptr) continue;
    times->us.push_back(1000 * Milliseconds(answer.ended - begin));
    Count(answer.code, answer.reason, times->codes);
  }
}

// A server of each program, in turns. Two servers of one program differ by as much as two programs
// may, so every round has new ones.
void TakeRound(const Settings& settings, const grpc::ByteBuffer& request,
               std::vector<Times>& programs) {
  std::vector<std::unique_ptr<IdleServer>> servers;
  std::vector<size_t> before;
  for (const Times& times : programs) {
    servers.push_back(std::make_unique<IdleServer>(times.program));
    before.push_back(times.us.size());
  }
  for (const auto& server : servers) Take(*server, request, nullptr);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      settings.phase * static_cast<double>(servers.size()));
  // Who comes second meets another machine: take turns at that, too.
  for (size_t turn = 0; Clock::now() < end; ++turn) {
    for (size_t i = 0; i < servers.size(); ++i) {
      const size_t at = (turn + i) % servers.size();
      Take(*servers[at], request, &programs[at]);
    }
  }
  for (size_t i = 0; i < programs.size(); ++i) {
    std::vector<double>& us = programs[i].us;
    const std::vector<double> ours(us.begin() + static_cast<ptrdiff_t>(before[i]), us.end());
    programs[i].medians.push_back(Quantile(ours, 0.5));
  }
}

}  // namespace

void IdleCost(const Settings& settings, Report& report) {
  std::vector<Times> programs(1);
  programs[0].program = settings.server;
  if (!settings.baseline.empty()) programs.push_back({.program = settings.baseline});
  const grpc::ByteBuffer request = BytesOf(AttendMessage({.tokens = 16}, 1));
  for (int round = 0; round < settings.rounds; ++round) {
    TakeRound(settings, request, programs);
  }

  const auto note = [&](const std::string& what, const Times& times) {
    report.Note(what + ": median, p99; median of each server; answers",
                Figure(Quantile(times.us, 0.5)) + ", " + Figure(Quantile(times.us, 0.99), "µs") +
                    "; " + Figures(times.medians) + "; " + TextOf(times.codes));
  };
  note("one small attention", programs[0]);
  if (programs.size() < 2) return;
  note("the baseline's", programs[1]);
  // Of pairs: from one round to the next the machine changes by more than that.
  std::vector<double> above;
  for (size_t round = 0; round < programs[0].medians.size(); ++round) {
    above.push_back(programs[0].medians[round] - programs[1].medians[round]);
  }
  report.AtMost("median above that of the baseline beside it, in the rounds' median",
                Quantile(above, 0.5), kMaxAddedUs, "µs");
}

}  // namespace castor::bench
