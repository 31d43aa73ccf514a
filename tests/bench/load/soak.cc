// Many requests of all kinds, some with hardly any time, some cancelled: each is answered once,
// each answer is right, and nothing is left behind, not after minutes either.

#include <future>
#include <thread>

#include "client/load/results/statistics.h"
#include "client/load/send/driver.h"
#include "client/load/workload/parse.h"
#include "tests/bench/load/bench.h"

namespace castor::bench {
namespace {

const std::atomic<bool> kNever = false;

// Every kernel, and texts; of three tenants; one in ten is cancelled, and one has 20 ms.
load::Workload Mixed(const load::Load& load, std::chrono::nanoseconds length) {
  std::string toml;
  int number = 0;
  const auto add = [&](const std::string& kind, const std::string& more) {
    const std::string name = kind + std::to_string(++number);
    for (const char* fate : {"", "-cancelled", "-hasty"}) {
      toml += "[[class]]\nname = \"" + name + fate + "\"\nkind = \"" + kind + "\"\n" + more;
      toml += "tenant = \"tenant" + std::to_string(number % 3) + "\"\n";
      toml += "priority = \"" + std::string(number % 2 == 0 ? "low" : "high") + "\"\n";
      if (*fate == '\0') toml += "weight = 8\n";
      if (fate == std::string("-cancelled")) {
        toml += "cancel-share = 1\ncancel-after = \"10ms\"\n";
      }
      if (fate == std::string("-hasty")) toml += "deadline = \"20ms\"\n";
    }
  };
  for (const char* kernel : {"vanilla", "vanilla,causal=true", "clustered,clusters=10",
                             "improved-clustered,clusters=10", "automatic", "cast"}) {
    add("attend",
        "heads = 2\nhead-dim = 32\nlengths = {uniform = [1, 300]}\npayloads = 12\n"
        "surrogate-tokens = 4\nkernel = \"" +
            std::string(kernel) + "\"\n");
  }
  add("encode", "lengths = {uniform = [2, 60]}\nsequences = {uniform = [1, 4]}\n");
  load::Workload workload = load::ParseWorkload(load::ParseToml(toml, "mixed"), "mixed");
  workload.load = load;
  workload.duration = length;
  workload.warm_up = std::chrono::seconds(0);
  return workload;
}

// Sends it all, compares all answers with those of the same requests alone.
load::RunData Drive(const Server& server, const load::Workload& workload) {
  load::Driver driver(workload, {.endpoints = {server.address()}, .verify_share = 1});
  driver.Prepare();
  return driver.Run({}, kNever);
}

void CheckAnswers(const load::RunData& run, Report& report) {
  const load::Cell total = run.Total();
  std::string outcomes;
  for (int i = 0; i < load::kOutcomes; ++i) {
    const auto outcome = static_cast<load::Outcome>(i);
    outcomes += (i > 0 ? ", " : "") + std::string(load::NameOf(outcome)) + " " +
                std::to_string(total.of(outcome));
  }
  report.Note("requests by how they ended", outcomes);
  report.Check("OK answers that are wrong", total.verified.different == 0,
               std::to_string(total.verified.different) + " of " +
                   std::to_string(total.verified.equal + total.verified.different));
  report.Check("calls that failed", total.of(load::Outcome::kFailed) == 0,
               std::to_string(total.of(load::Outcome::kFailed)));
}

// Notes the growth in the second half, and returns it with its bound, in MiB per minute.
double Growth(const std::string& what, const std::vector<double>& mib, double seconds_between,
              Report& report) {
  const std::vector<double> later(mib.begin() + static_cast<ptrdiff_t>(mib.size() / 2), mib.end());
  const load::Growth growth = load::GrowthOf(later, 0.95);
  const double minutes = static_cast<double>(later.size()) * seconds_between / 60;
  report.Note(what + ", in the second half: mean; growth, and its least",
              Figure(growth.mean, "MiB") + "; " + Figure(growth.growth / minutes) + ", " +
                  Figure(growth.at_least / minutes, "MiB/min"));
  return growth.growth / minutes;
}

}  // namespace

void ExactlyOnce(const Settings& settings, Report& report) {
  Server server(settings.server, {"--model", "encoder=" + settings.model});
  const load::RunData run = Drive(
      server, Mixed(load::OpenLoop{.rate = 500}, std::chrono::seconds(20)));  // 10,000 requests
  CheckAnswers(run, report);
  server.CheckNothingLeftBehind(report);
  // The last ones are met by a drain: each ends, answered or refused.
  const Traffic traffic = {.payloads = ShortAttends(16, 3)};
  auto running = std::async(std::launch::async,
                            [&] { return RunOpen(server, traffic, 200, Seconds(3), true); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  server.CheckDrain(report);
  const Calls calls = running.get();
  report.Check("calls around the drain that ended once", calls.calls.size() == 600, calls.Codes());
}

// A leak shows in minutes, not in seconds. Freed memory that the allocator keeps counts as resident
// and by default grows over hours, so here the allocator returns it at once.
void Soak(const Settings& settings, Report& report) {
  constexpr double kMaxGrowth = 1;       // MiB per minute
  constexpr double kLeastSeconds = 300;  // in less, memory has not settled: there is no bound
  constexpr double kBetween = 2;         // seconds
  Server server(settings.server, {"--model", "encoder=" + settings.model, "--max-kept-bytes", "0"});
  const load::Workload workload =
      Mixed(load::ClosedLoop{.callers = 12},
            std::chrono::duration_cast<std::chrono::nanoseconds>(settings.phase));
  auto running = std::async(std::launch::async, [&] { return Drive(server, workload); });
  std::vector<double> heap, resident;
  while (running.wait_for(Seconds(kBetween)) != std::future_status::ready) {
    const auto used = client::SumOf(server.Metrics(), "castor_heap_used_bytes");
    if (used.has_value()) heap.push_back(*used / (1 << 20));
    resident.push_back(static_cast<double>(server.process().ResidentBytes()) / (1 << 20));
  }
  CheckAnswers(running.get(), report);
  const double heap_growth = Growth("the heap's blocks in use", heap, kBetween, report);
  const double growth = Growth("what is resident", resident, kBetween, report);
  if (settings.phase.count() >= kLeastSeconds) {
    report.AtMost("growth of the heap's blocks in use", heap_growth, kMaxGrowth, "MiB/min");
    report.AtMost("growth of what is resident", growth, kMaxGrowth, "MiB/min");
  }
  server.CheckNothingLeftBehind(report);
  server.CheckDrain(report);
}

}  // namespace castor::bench
