// The time that castor-server adds to a call's own work, against a gRPC server that does nothing
// with the same bytes.

#include <algorithm>
#include <string>
#include <vector>

#include "tests/bench/load/bench.h"

namespace castor::bench {
namespace {

constexpr int kServerCpu = 0;
constexpr int kClientCpu = 1;

// The server's processor time for a call, in µs.
double CpuPerCall(const Server& server, const Traffic& traffic, double rate, Seconds length) {
  (void)RunOpen(server, traffic, rate, length / 4);
  const auto before = server.CpuTime();
  const Calls calls = RunOpen(server, traffic, rate, length);
  const double us = Milliseconds(server.CpuTime() - before) * 1e3;
  return us / std::max<double>(1, static_cast<double>(calls.calls.size()));
}

double Median(const Server& server, const Traffic& traffic, Seconds length) {
  (void)RunClosed(server, traffic, 1, length / 4);
  return Quantile(RunClosed(server, traffic, 1, length).Latencies(), 0.5) * 1e3;
}

}  // namespace

void CallCost(const Settings& settings, Report& report) {
  constexpr double kRate = 3000;
  constexpr double kMaxRefusal = 1.3, kMaxSmall = 1.5;
  const PinnedTo here(kClientCpu);
  {
    // Texts that cannot be answered by their deadline, even alone.
    const Server castor(settings.server, {"--model", "encoder=" + settings.model}, kServerCpu);
    const Server bare(settings.bare_server, {"--answer-bytes", "0"}, kServerCpu);
    const Traffic texts = {
        .payloads = {Encode(std::vector<std::string>(8, "a beaver builds a dam"))},
        .deadline = std::chrono::milliseconds(4)};
    double refused_us = 0, bare_us = 0, refused_ms = 0, refusals = 0;
    for (int round = 0; round < settings.rounds; ++round) {
      refused_us += CpuPerCall(castor, texts, kRate, settings.phase / 2);
      bare_us += CpuPerCall(bare, texts, kRate, settings.phase / 2);
      const Calls calls = RunClosed(castor, texts, 1, settings.phase / 4);
      std::vector<double> ms;
      for (const Outcome& call : calls.calls) {
        if (call.code == grpc::StatusCode::OK) continue;
        ms.push_back(Milliseconds(call.ended - call.sent));
      }
      refused_ms += Quantile(ms, 0.5) / settings.rounds;
      refusals += static_cast<double>(ms.size()) / static_cast<double>(calls.calls.size());
    }
    report.Note("refused, of the calls", Figure(100 * refusals / settings.rounds, "%"));
    report.Note(
        "a refused call's processor time, a bare one's",
        Figure(refused_us / settings.rounds) + ", " + Figure(bare_us / settings.rounds, "µs"));
    report.AtMost("refused over bare", refused_us / bare_us, kMaxRefusal, "×");
    report.AtMost("refusals' median, from when they were sent", refused_ms, 1, "ms");
  }
  // 24 KiB in, 8 KiB out.
  constexpr int64_t kTokens = 16, kHeads = 4, kHeadDim = 32;
  const Server castor(settings.server, {}, kServerCpu);
  const Server bare(settings.bare_server,
                    {"--answer-bytes", std::to_string(kTokens * kHeads * kHeadDim * 4)},
                    kServerCpu);
  const Traffic small = {.payloads = {Attend(kTokens, kHeads, kHeadDim, 1)}, .connections = 1};
  double castor_us = 0, bare_us = 0;
  for (int round = 0; round < settings.rounds; ++round) {
    castor_us += Median(castor, small, settings.phase / 4);
    bare_us += Median(bare, small, settings.phase / 4);
  }
  report.Note("a small attention call, a bare one: p50",
              Figure(castor_us / settings.rounds) + ", " + Figure(bare_us / settings.rounds, "µs"));
  report.AtMost("a small attention call over a bare one", castor_us / bare_us, kMaxSmall, "×");
}

}  // namespace castor::bench
