// More texts than the server can encode: it must go on answering as many in time as it can, refuse
// the others at once, and let a modest tenant hardly notice a greedy one.

#include <algorithm>
#include <array>
#include <future>

#include "tests/bench/command_line.h"
#include "tests/bench/load/bench.h"

namespace castor::bench {
namespace {

constexpr std::chrono::milliseconds kDeadline{1000};

// A text server on one processor and this program on another, so that the load cannot slow the
// server that it measures.
//
// A gRPC server that refuses every call and does nothing else runs next to it. A castor-server
// under ten times its load must reach what the machine has left after such refusals: if gRPC takes
// a third of the processor to refuse, no server has nine tenths for other work.
class PinnedTextServer {
 public:
  explicit PinnedTextServer(const Settings& settings)
      : server_(settings.server, {"--model", "encoder=" + settings.model}, Cpu(0)),
        bare_(settings.bare_server, {}, Cpu(0)),
        here_(Cpu(1)) {
    (void)Capacity(std::chrono::seconds(1));  // warms it up
  }

  // Calls that the other server refuses.
  Calls RunBare(double rate, Seconds length, uint64_t seed) {
    return RunOpen(bare_, With(seed, ""), rate, length);
  }
  // The part of the processor that it leaves.
  double LeftByBare(double rate, Seconds length) {
    const auto before = bare_.CpuTime();
    (void)RunBare(rate, length, 1);
    return 1 - Milliseconds(bare_.CpuTime() - before) /
                   Milliseconds(std::chrono::duration_cast<Clock::duration>(length));
  }

  double Capacity(Seconds length) { return bench::Capacity(server_, With(1, ""), 32, length); }
  Calls Run(double rate, Seconds length, uint64_t seed, const std::string& tenant = "") {
    return RunOpen(server_, With(seed, tenant), rate, length);
  }

 private:
  // The first two that this program may use.
  static int Cpu(int index) {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set) && index-- == 0) return cpu;
    }
    Die("this scenario needs two processors");
  }
  // Ten times too much is thousands of calls in flight, and a server bounds those of a connection.
  Traffic With(uint64_t seed, const std::string& tenant) const {
    return {.payloads = texts_,
            .deadline = kDeadline,
            .tenant = tenant,
            .connections = 16,
            .seed = seed};
  }

  const std::vector<Payload> texts_ = ShortTexts(512, 1);
  Server server_;
  Server bare_;
  const PinnedTo here_;
};

struct Tally {
  double good = 0, late = 0;         // answered in time; admitted, and not answered in time
  std::vector<double> refused_ms{};  // from when they were sent
  double goodput = 0;  // good ones a second, without the first deadline's length and the run-out

  explicit Tally(const Calls& calls) {
    const Clock::time_point from = calls.begin + kDeadline;
    const Clock::time_point to =
        calls.begin + std::chrono::duration_cast<Clock::duration>(calls.length);
    for (const Outcome& call : calls.calls) {
      if (call.code == grpc::StatusCode::OK && call.ended - call.intended <= kDeadline) {
        ++good;
        goodput += call.ended >= from && call.ended < to ? 1 : 0;
      } else if (call.code == grpc::StatusCode::OK || call.ended - call.sent >= kDeadline / 2) {
        ++late;
      } else {
        refused_ms.push_back(Milliseconds(call.ended - call.sent));
      }
    }
    goodput /= std::max(1e-9, Milliseconds(to - from) / 1000);
  }
};

}  // namespace

void Overload(const Settings& settings, Report& report) {
  struct Step {
    double load;           // of the peak
    double least_goodput;  // percent of the peak; 0: no bound
  };
  constexpr std::array<Step, 4> kSteps = {{{0.5, 0}, {1, 0}, {2, 95}, {10, 90}}};
  constexpr double kMaxRefusalMs = 5, kMaxLatePercent = 0.1;
  PinnedTextServer server(settings);
  const double capacity = server.Capacity(settings.phase);
  report.Note("closed loop", Figure(capacity, "/s"));
  if (capacity <= 0) return report.Check("texts", false, "the server answers none");

  // Every round measures the peak again: the machine's speed drifts.
  std::array<double, 4> peaks{};  // sums of goodput
  std::array<double, kSteps.size()> goodputs{};
  std::array<double, kSteps.size()> left{};  // of the processor, by who only refuses the rest
  std::array<Calls, kSteps.size()> loads{};
  double peak = 0;
  for (int round = 0; round < settings.rounds; ++round) {
    const auto seed = static_cast<uint64_t>(round) + 1;
    for (size_t i = 0; i < peaks.size(); ++i) {
      const double share = 0.8 + 0.1 * static_cast<double>(i);
      peaks[i] += Tally(server.Run(share * capacity, settings.phase, seed)).goodput;
    }
    peak = *std::max_element(peaks.begin(), peaks.end()) / (round + 1);
    for (size_t i = 0; i < loads.size(); ++i) {
      const Calls run = server.Run(kSteps[i].load * peak, settings.phase, seed + 1000);
      goodputs[i] += Tally(run).goodput;
      loads[i].Append(run);
      const double refused = std::max(0.0, kSteps[i].load - 1) * peak;
      left[i] += refused > 0 ? server.LeftByBare(refused, settings.phase / 4) : 1;
    }
  }
  report.Note("peak: the best goodput at 0.8 to 1.1 of that", Figure(peak, "/s"));
  for (size_t i = 0; i < loads.size(); ++i) {
    const std::string name = Figure(kSteps[i].load) + "× the peak: ";
    const Tally tally(loads[i]);
    const double goodput = 100 * goodputs[i] / settings.rounds / peak;
    const double left_by_bare = left[i] / settings.rounds;
    report.Note(name + "goodput, of the peak; left by a bare server that refuses the rest",
                Figure(goodput) + ", " + Figure(100 * left_by_bare, "%"));
    report.AtLeast(name + "goodput, of the peak and of what that leaves", goodput / left_by_bare,
                   kSteps[i].least_goodput, "%");
    if (!tally.refused_ms.empty()) {
      report.AtMost(name + "refusals' median, from when they were sent",
                    Quantile(tally.refused_ms, 0.5), kMaxRefusalMs, "ms");
    }
    const double admitted = std::max(1.0, tally.good + tally.late);
    report.AtMost(name + "late, of those admitted", 100 * tally.late / admitted, kMaxLatePercent,
                  "%");
    report.Note(name + "the generator's p99 lag; answers",
                Figure(loads[i].P99Lag(), "ms") + "; " + loads[i].Codes());
  }
}

// Two tenants share a server: one asks for little. The other asks for its share, and then for ten
// times as much, which the first must hardly notice.
void GreedyTenant(const Settings& settings, Report& report) {
  constexpr double kModestLoad = 0.2, kShare = 0.5;  // of the capacity
  constexpr double kMaxRatio = 1.2;
  PinnedTextServer server(settings);
  const double capacity = server.Capacity(settings.phase / 2);
  report.Note("closed loop", Figure(capacity, "/s"));
  if (capacity <= 0) return report.Check("texts", false, "the server answers none");
  struct Company {
    const char* name;
    double times_share;       // what the other asks for; 0: it is not there
    double bare_times_share;  // for the server that only refuses
    Calls modest{};
    std::vector<double> p99s{};  // the modest tenant's, by round
  };
  std::array<Company, 4> companies = {{{"alone", 0, 0},
                                       {"with the other's share", 1, 0},
                                       {"with that, and a bare server that refuses 9× it", 1, 9},
                                       {"with 10× the other's share", 10, 0}}};
  for (int round = 0; round < settings.rounds; ++round) {
    const auto seed = static_cast<uint64_t>(round) + 1;
    for (Company& company : companies) {
      std::future<Calls> other;
      if (company.times_share > 0) {
        other = std::async(std::launch::async, [&] {
          return server.Run(company.times_share * kShare * capacity, settings.phase, seed + 1000,
                            "other");
        });
      }
      std::future<Calls> refused;
      if (company.bare_times_share > 0) {
        refused = std::async(std::launch::async, [&] {
          return server.RunBare(company.bare_times_share * kShare * capacity, settings.phase,
                                seed + 2000);
        });
      }
      const Calls run = server.Run(kModestLoad * capacity, settings.phase, seed, "modest");
      company.p99s.push_back(Quantile(run.Latencies(), 0.99));
      company.modest.Append(run);
    }
  }
  // The rounds' median: a neighbour that takes the processor for half a second would decide the p99
  // of all rounds together.
  std::vector<double> p99s;
  for (const Company& company : companies) {
    p99s.push_back(Quantile(company.p99s, 0.5));
    report.Note(std::string("modest ") + company.name + ": p99 of each round; answers",
                Figures(company.p99s) + " ms; " + company.modest.Codes());
  }
  report.Note("modest's p99 with 10× the other's share / with its share",
              Figure(p99s[3] / p99s[1], "×"));
  report.AtMost("the same / with a bare server that refuses the rest", p99s[3] / p99s[2], kMaxRatio,
                "×");
}

}  // namespace castor::bench
