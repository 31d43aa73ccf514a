#include "client/load/drive/calibrate.h"

#include <sys/resource.h>

#include <optional>

#include "client/load/drive/lane.h"
#include "client/load/drive/recorder.h"
#include "client/load/http2/echo_identity.h"
#include "client/load/http2/local_server.h"

namespace castor::load {
namespace {

constexpr int64_t kCallers = 64;     // as many as keep both sides busy
constexpr double kScheduled = 0.25;  // of the rate found

std::chrono::nanoseconds ProcessorTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Every class at the one endpoint.
RunData EmptyRun(const Workload& workload) {
  RunData run;
  for (const ClassSpec& spec : workload.classes) {
    Cell cell;
    cell.above_goal.resize(spec.objective.latencies.size());
    run.classes.push_back(spec.name);
    run.objectives.push_back(spec.objective);
    run.cells.push_back({cell});
  }
  run.endpoints = {"echo"};
  return run;
}

}  // namespace

Calibration Calibrate(const Driver& driver, int lanes, int connections,
                      std::chrono::nanoseconds length) {
  // Encryption is a large part of what a request costs: the echo is on TLS if the servers are.
  std::optional<EchoIdentity> identity;
  if (driver.traffic().tls) identity.emplace();
  const LocalServer echo(LocalServer::Echo, {.tls = identity ? identity->context() : nullptr});
  Workload workload = driver.workload();
  for (ClassSpec& spec : workload.classes) {
    spec.cancel_share = 0;
    spec.deadline = std::max<std::chrono::nanoseconds>(spec.deadline, std::chrono::seconds(10));
  }
  Traffic traffic = driver.traffic();
  traffic.workload = &workload;
  traffic.references = nullptr;
  if (identity) traffic.tls = client::TlsOptions{.ca_file = identity->ca_file()};
  traffic.endpoints = {echo.target()};
  traffic.connections = connections;
  workload.duration = length;
  workload.warm_up = {};

  // Runs `start` on each lane and adds up what they measured.
  const auto run_lanes = [&](const auto& start) {
    InFlight in_flight(workload.classes.size());
    RunData run = EmptyRun(workload);
    std::vector<std::unique_ptr<Recorder>> recorders;
    std::vector<std::unique_ptr<Lane>> all;
    for (int i = 0; i < lanes; ++i) {
      recorders.push_back(std::make_unique<Recorder>(workload, 1, nullptr));
      all.push_back(std::make_unique<Lane>(traffic, *recorders.back(), in_flight));
      all.back()->AwaitConnections(std::chrono::seconds(10));
    }
    const auto begin = Clock::now() + std::chrono::milliseconds(20);
    for (int i = 0; i < lanes; ++i) start(*all[i], i, begin);
    for (const auto& lane : all) lane->Await();
    for (const auto& recorder : recorders) recorder->MoveTo(run);
    return run.Total();
  };

  Calibration found;
  const double seconds = std::chrono::duration<double>(length).count();
  const std::chrono::nanoseconds before = ProcessorTime();
  const Cell fastest = run_lanes([&](Lane& lane, int i, Clock::time_point begin) {
    auto endless = std::make_shared<EndlessSchedule>(workload, 0, i);
    lane.StartClosed([endless] { return endless->Next(); }, kCallers / lanes + 1, {}, begin, begin,
                     begin + length);
  });
  const auto answers = static_cast<double>(std::max<int64_t>(1, fastest.of(Outcome::kOk)));
  found.rate = answers / seconds;
  found.cpu_us =
      std::chrono::duration<double, std::micro>(ProcessorTime() - before).count() / answers;

  workload.load = OpenLoop{.rate = FlatRate{kScheduled * found.rate}};
  const Schedule schedule = MakeSchedule(workload, 0);
  const Cell scheduled = run_lanes([&](Lane& lane, int i, Clock::time_point begin) {
    lane.StartOpen(schedule, i, lanes, 0, begin);
  });
  found.lag_p50_us = static_cast<double>(scheduled.lag.ValueAt(0.5)) / 1000;
  found.lag_p99_us = static_cast<double>(scheduled.lag.ValueAt(0.99)) / 1000;
  return found;
}

}  // namespace castor::load
