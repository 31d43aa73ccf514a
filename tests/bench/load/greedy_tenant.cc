// Two tenants share a server: one asks for little. The other asks for its share, and then for ten
// times as much, which the first must hardly notice.

#include <array>
#include <future>
#include <string>
#include <vector>

#include "tests/bench/load/after_jump.h"
#include "tests/bench/load/neighbours.h"
#include "tests/bench/load/pinned.h"

namespace castor::bench {
namespace {

constexpr double kModestLoad = 0.2;  // of the capacity
constexpr double kShare = 0.5;       // of the capacity: the other's
constexpr double kMaxRatio = 1.2;

// What the modest tenant meets beside the other, in all rounds.
struct Company {
  std::string name{};
  double times_share = 0;  // what the other asks for; 0: it is not there
  Outcomes modest{}, other{};
  std::vector<double> p99s{};        // the modest tenant's, by round
  std::vector<double> neighbours{};  // percent of the machine that other programs took, by round
  AfterJump others_jump{};

  void Run(PinnedTextServer& server, double capacity, const Settings& settings, uint64_t seed) {
    const std::chrono::nanoseconds before = server.process().CpuTime();
    const Neighbours around;
    std::future<Outcomes> beside;
    if (times_share > 0) {
      beside = std::async(std::launch::async, [&] {
        return server.Run(times_share * kShare * capacity, settings.phase, seed + 1000, "other");
      });
    }
    const Outcomes run = server.Run(kModestLoad * capacity, settings.phase, seed, "modest");
    p99s.push_back(Quantile(Latencies(run), 0.99));
    Append(run, modest);
    if (times_share > 0) {
      const Outcomes others = beside.get();
      others_jump.Add(others);
      Append(others, other);
    }
    neighbours.push_back(around.PercentTaken(server.process().CpuTime() - before));
  }

  // Of the rounds' median: a neighbour that takes the processor for half a second makes the p99 of
  // all rounds together.
  double p99() const { return Quantile(p99s, 0.5); }

  double PercentWithoutAnswerInTime() const {
    const Tally tally = TallyOf(modest);
    const auto calls = static_cast<double>(std::max<size_t>(1, modest.calls.size()));
    return 100 * static_cast<double>(tally.refused() + tally.late) / calls;
  }

  void Note(double capacity, Report& report) const {
    report.Note("modest " + name + ": p50, p99; the generator's p99 lag; answers",
                Figure(Quantile(Latencies(modest), 0.5)) + ", " +
                    Figure(Quantile(Latencies(modest), 0.99), "ms") + "; " +
                    Figure(Quantile(Lags(modest), 0.99), "ms") + "; " + TextOf(CodesOf(modest)));
    report.Note("modest " + name + ": calls without an answer in time",
                Figure(PercentWithoutAnswerInTime(), "%"));
    report.Note("modest " + name + ": p99 of each round; what other programs took of the machine",
                Figures(p99s) + " ms; " + Figures(neighbours) + " %");
    if (times_share == 0) return;
    report.Note("modest " + name + ": the other's answers", TextOf(CodesOf(other)));
    others_jump.Note("modest " + name + ": the other's ", capacity, report);
  }
};

}  // namespace

void GreedyTenant(const Settings& settings, Report& report) {
  PinnedTextServer server(settings);
  const double capacity = server.Capacity(settings.phase / 2);
  report.Note("closed loop", Figure(capacity, "/s"));
  if (capacity <= 0) return report.Missing("texts", "the server answers none", "");
  std::array<Company, 3> companies = {{{.name = "alone"},
                                       {.name = "beside the other's share", .times_share = 1},
                                       {.name = "beside 10× that", .times_share = 10}}};
  for (int round = 0; round < settings.rounds; ++round) {
    for (Company& company : companies) {
      company.Run(server, capacity, settings, static_cast<uint64_t>(round) + 1);
    }
  }

  for (const Company& company : companies) company.Note(capacity, report);
  const auto& [alone, share, greedy] = companies;
  report.AtMost(
      "modest's p99 beside 10× the other's share, of that beside its share, rounds' medians",
      greedy.p99() / share.p99(), kMaxRatio, "×");
  report.Note("modest's p99 beside the other's share, and 10× that, of that alone",
              Figure(share.p99() / alone.p99()) + ", " + Figure(greedy.p99() / alone.p99(), "×"));
}

}  // namespace castor::bench
