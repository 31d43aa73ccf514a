// Two tenants share a server: one asks for little, the other for ten times its half.

#include <future>

#include "tests/bench/load/pinned.h"

namespace castor::bench {
namespace {

constexpr double kModestLoad = 0.2;  // of the capacity
constexpr double kGreedyLoad = 10 * 0.5;
constexpr double kMaxRatio = 1.2;

}  // namespace

void GreedyTenant(const Settings& settings, Report& report) {
  PinnedTextServer server(settings);
  const double capacity = server.Capacity(settings.phase / 2);
  report.Note("closed loop", Figure(capacity, "/s"));
  if (capacity <= 0) return report.Missing("texts", "the server answers none", "");
  Outcomes alone, beside, greedy;
  for (int round = 0; round < settings.rounds; ++round) {
    const auto seed = static_cast<uint64_t>(round) + 1;
    Append(server.Run(kModestLoad * capacity, settings.phase, seed, "modest"), alone);
    auto other = std::async(std::launch::async, [&] {
      return server.Run(kGreedyLoad * capacity, settings.phase, seed + 1000, "greedy");
    });
    Append(server.Run(kModestLoad * capacity, settings.phase, seed, "modest"), beside);
    Append(other.get(), greedy);
  }

  for (const auto& [name, outcomes] :
       {std::pair{"modest alone", &alone}, std::pair{"modest beside greedy", &beside}}) {
    const std::vector<double> latencies = Latencies(*outcomes);
    report.Note(std::string(name) + ": p50, p99; the generator's p99 lag; answers",
                Figure(Quantile(latencies, 0.5)) + ", " + Figure(Quantile(latencies, 0.99), "ms") +
                    "; " + Figure(Quantile(Lags(*outcomes), 0.99), "ms") + "; " +
                    TextOf(CodesOf(*outcomes)));
  }
  report.Note("greedy: answers", TextOf(CodesOf(greedy)));
  report.AtMost("modest's p99, beside greedy over alone",
                Quantile(Latencies(beside), 0.99) / Quantile(Latencies(alone), 0.99), kMaxRatio,
                "×");
  const auto refused_percent = [](const Outcomes& outcomes) {
    const Tally tally = TallyOf(outcomes);
    const auto calls = static_cast<double>(std::max<size_t>(1, outcomes.calls.size()));
    return 100 * static_cast<double>(tally.refused() + tally.late) / calls;
  };
  report.Note("modest's calls without an answer in time: alone, beside greedy",
              Figure(refused_percent(alone), "%") + ", " + Figure(refused_percent(beside), "%"));
}

}  // namespace castor::bench
