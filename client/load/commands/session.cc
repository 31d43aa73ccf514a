#include "client/load/commands/session.h"

#include <unistd.h>

#include <charconv>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/values.h"
#include "client/load/base/errors.h"
#include "client/load/commands/command.h"
#include "client/load/commands/output_flags.h"
#include "client/load/drive/calibrate.h"
#include "client/load/target/server_counts.h"
#include "client/load/workers/token.h"
#include "client/load/workload/parse.h"
#include "client/target.h"

namespace castor::load {
namespace {

constexpr std::chrono::milliseconds kCalibration{250};

// DriveOptions as a job carries them.
std::map<std::string, std::string> FlagsOf(const DriveOptions& options) {
  return {{"lanes", std::to_string(options.lanes)},
          {"connections", std::to_string(options.connections)},
          {"verify-share", std::to_string(options.verify_share)},
          {"tls", options.client.tls ? "1" : "0"},
          {"token", options.client.token.empty() && options.client.token_file.empty() ? "0" : "1"}};
}

double NumberOf(const Job& job, const std::string& flag) {
  const auto found = job.flags.find(flag);
  double value = 0;
  if (found != job.flags.end()) {
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), value);
  }
  return value;
}

DriveOptions OptionsOf(const Job& job, const cli::SecurityFlags& security) {
  DriveOptions options = {
      .endpoints = job.endpoints, .worker = job.index, .workers = job.workers, .count_alone = true};
  options.lanes = std::clamp(static_cast<int>(NumberOf(job, "lanes")), 1, 256);
  options.connections = std::clamp(static_cast<int>(NumberOf(job, "connections")), 1, 1024);
  options.verify_share = std::clamp(NumberOf(job, "verify-share"), 0.0, 1.0);
  security.SetOn(&options.client);
  if (NumberOf(job, "tls") > 0 && !options.client.tls) options.client.tls.emplace();
  if (NumberOf(job, "token") > 0 && options.client.token.empty() &&
      options.client.token_file.empty()) {
    throw std::runtime_error(
        "the run has a token, which does not travel: start this worker with --token-file or "
        "CASTOR_TOKEN");
  }
  return options;
}

// A workload's own tokens go to workers in the open.
void CheckTokensMayTravel(const Workload& workload, const cli::SecurityFlags& security,
                          const std::string& worker) {
  if (security.allow_plaintext_token || client::IsOnThisMachine(worker)) return;
  for (const ClassSpec& spec : workload.classes) {
    if (spec.token.empty()) continue;
    throw cli::UsageError("class '" + spec.name + "' has a token, and " + worker +
                          " is reached over plaintext: give that worker --token-file instead, or "
                          "set --allow-plaintext-token");
  }
}

void PrepareAndCalibrate(Driver& driver, const DriveOptions& options) {
  driver.Prepare();
  driver.set_calibrated_rate(
      Calibrate(driver, options.lanes, options.connections, kCalibration).rate);
}

}  // namespace

void AddWorkerFlags(CLI::App* command, WorkerFlags* flags) {
  const std::string group = "More than one process";
  auto* processes =
      command->add_option("--workers", flags->processes, "Processes on this machine that send")
          ->type_name("N")
          ->transform(cli::Number(1, 256))
          ->group(group);
  command
      ->add_option("--worker", flags->remote,
                   "Address of a 'castor-load worker' that sends a share; repeatable")
      ->type_name("HOST:PORT")
      ->allow_extra_args(false)
      ->check(cli::Name())
      ->excludes(processes)
      ->group(group);
  command->add_option("--worker-token-file", flags->token_file, "The token that they ask for")
      ->type_name("FILE")
      ->check(cli::FileName())
      ->group(group);
}

Session::Session(const TrafficFlags& flags, Workload workload, const WorkerFlags& workers,
                 bool quiet)
    : flags_(flags), workload_(std::move(workload)) {
  if (!quiet) view_.emplace(STDERR_FILENO);
  if (workers.processes > 0) {
    local_ = std::make_unique<LocalWorkers>(workers.processes, "/proc/self/exe",
                                            flags_.security.Arguments());
    workers_ = local_->addresses();
  }
  for (const std::string& remote : workers.remote) {
    CheckTokensMayTravel(workload_, flags_.security, remote);
    workers_.push_back({remote, workers.token_file.empty() ? "" : ReadToken(workers.token_file)});
  }
  if (!workers_.empty()) {
    if (!flags_.request_log.empty()) {
      throw cli::UsageError("--log-requests: workers write none; leave out --workers, or this");
    }
    return;
  }
  const DriveOptions options = flags_.MakeDriveOptions();
  driver_ = std::make_unique<Driver>(workload_, options);
  PrepareAndCalibrate(*driver_, options);
}

RunData Session::Run(const decltype(Workload::load)& load, std::chrono::nanoseconds duration,
                     std::chrono::nanoseconds warm_up, uint64_t seed) {
  const OnProgress show = [this](const Progress& progress) {
    if (view_) view_->Show(progress);
  };
  RunData run;
  if (driver_ != nullptr) {
    run = driver_->Run(load, duration, warm_up, seed, show, StopRequested());
  } else {
    Workload workload = workload_;
    workload.load = load;
    workload.duration = duration;
    workload.warm_up = warm_up;
    workload.seed = seed;
    run = RunOnAllWorkers(workload, show);
  }
  if (view_) view_->Hide();
  return run;
}

RunData Session::RunOnAllWorkers(const Workload& workload, const OnProgress& on_progress) {
  const DriveOptions options = flags_.MakeDriveOptions();
  const Job job = {.workload_toml = ToToml(workload),
                   .seed = workload.seed,
                   .endpoints = options.endpoints,
                   .flags = FlagsOf(options)};
  // Workers count what they send before the run, too: nobody can read the servers' counts between.
  std::vector<ServerCounts> servers = AskServers(options.metrics, options.endpoints.size());
  SharedRun shared =
      RunOnWorkers(workers_, job,
                   {.version = CASTOR_VERSION, .lead = std::chrono::seconds(1) + workload.warm_up},
                   on_progress, StopRequested());
  AskAgain(servers);
  workers_finding_ = shared.finding();
  if (shared.data.classes.empty()) throw ServerError(workers_finding_->text);
  shared.data.servers.resize(servers.size());
  for (size_t i = 0; i < servers.size(); ++i) {
    servers[i].calls = shared.data.servers[i].calls;
    shared.data.servers[i] = std::move(servers[i]);
  }
  return std::move(shared.data);
}

Verdict Session::Judge(const RunData& run) const {
  Verdict verdict = load::Judge(run, flags_.MakeRules());
  if (workers_finding_) verdict.validity.push_back(*workers_finding_);
  return verdict;
}

RunJob PrepareOnWorker(const Job& job, const cli::SecurityFlags& security) {
  Workload workload = ShareOf(ParseWorkload(job.workload_toml, "the coordinator's workload"),
                              job.index, job.workers);
  workload.seed = job.seed;
  const DriveOptions options = OptionsOf(job, security);
  const auto driver = std::make_shared<Driver>(std::move(workload), options);
  PrepareAndCalibrate(*driver, options);
  return [driver](Clock::time_point begin, const OnProgress& on_progress,
                  const std::atomic<bool>& stop) { return driver->Run(on_progress, stop, begin); };
}

}  // namespace castor::load
