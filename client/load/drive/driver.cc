#include "client/load/drive/driver.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <future>
#include <utility>

#include "client/cli/command.h"
#include "client/client.h"
#include "client/error.h"
#include "client/load/base/errors.h"
#include "client/load/drive/lane.h"
#include "client/load/drive/recorder.h"
#include "client/load/drive/request_log.h"
#include "client/load/schedule/schedule.h"
#include "client/load/target/server_counts.h"
#include "client/load/workload/parse.h"

namespace castor::load {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr seconds kConnectPatience{10};
constexpr seconds kExplainPatience{2};
constexpr std::chrono::milliseconds kHeadStart{200};    // for the lanes' threads to be ready
constexpr int64_t kMaxPayloadBytes = int64_t{4} << 30;  // of all classes

double ProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string Iso8601(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

int64_t MostInFlight(const decltype(Workload::load)& load) {
  if (const auto* open = std::get_if<OpenLoop>(&load)) return open->max_in_flight;
  if (const auto* replay = std::get_if<Replay>(&load)) return replay->max_in_flight;
  return 0;
}

// The requests of this process, without those of the warm-up.
int64_t CountOwn(const Schedule& schedule, const DriveOptions& options) {
  const auto lanes = static_cast<size_t>(options.lanes);
  int64_t count = 0;
  for (size_t i = 0; i < schedule.size(); ++i) {
    const size_t stream = i % (lanes * options.workers);
    count += stream / lanes == options.worker && schedule[i].at_ns >= 0 ? 1 : 0;
  }
  return count;
}

// One call, waited for.
grpc::Status CallAndWait(grpc::Channel& channel, const ClassSpec& spec, const Payload& payload,
                         const std::string& authorization, std::string* answer) {
  grpc::GenericStub stub(std::shared_ptr<grpc::Channel>(std::shared_ptr<void>(), &channel));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::max<nanoseconds>(spec.deadline, seconds(30)));
  if (!spec.tenant.empty()) context.AddMetadata("castor-tenant", spec.tenant);
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  grpc::CompletionQueue queue;
  grpc::Status status;
  const grpc::Slice message(payload.message.data(), payload.message.size(),
                            grpc::Slice::STATIC_SLICE);
  const auto reader =
      stub.PrepareUnaryCall(&context, payload.method, grpc::ByteBuffer(&message, 1), &queue);
  reader->StartCall();
  grpc::ByteBuffer bytes;
  reader->Finish(&bytes, &status, &status);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice whole;
  if (status.ok()) status = bytes.DumpToSingleSlice(&whole);
  answer->assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
  return status;
}

}  // namespace

// The lanes of one run, each with its recorder.
class Driver::Lanes {
 public:
  Lanes(const Traffic& traffic, int count, RequestLog* log)
      : in_flight_(traffic.workload->classes.size()) {
    for (int i = 0; i < count; ++i) {
      recorders_.push_back(
          std::make_unique<Recorder>(*traffic.workload, traffic.endpoints.size(), log));
      lanes_.push_back(std::make_unique<Lane>(traffic, *recorders_.back(), in_flight_));
    }
    for (const auto& lane : lanes_) lane->AwaitConnections(kConnectPatience);
  }

  size_t size() const { return lanes_.size(); }
  Lane& lane(size_t i) { return *lanes_[i]; }
  const InFlight& in_flight() const { return in_flight_; }

  void Stop() {
    for (const auto& lane : lanes_) lane->Stop();
  }
  void Await() {
    for (const auto& lane : lanes_) lane->Await();
  }
  nanoseconds BusiestThread() const {
    nanoseconds most{0};
    for (const auto& lane : lanes_) most = std::max(most, lane->BusiestThread());
    return most;
  }
  std::vector<Second> TakeRecent() {
    std::vector<Second> recent;
    for (const auto& recorder : recorders_) {
      std::vector<Second> more = recorder->TakeRecent();
      recent.resize(more.size());
      for (size_t cls = 0; cls < more.size(); ++cls) recent[cls].Add(more[cls]);
    }
    return recent;
  }
  void MoveTo(RunData& run) {
    for (const auto& recorder : recorders_) {
      recorder->MoveTo(run);
      for (size_t endpoint = 0; endpoint < run.servers.size(); ++endpoint) {
        for (size_t i = 0; i < kOutcomes; ++i) {
          run.servers[endpoint].calls[i] += recorder->calls()[endpoint][i];
        }
      }
    }
  }

 private:
  InFlight in_flight_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

Driver::Driver(Workload workload, DriveOptions options)
    : workload_(std::move(workload)), options_(std::move(options)) {
  traffic_.workload = &workload_;
  traffic_.endpoints = options_.endpoints;
  traffic_.connections = options_.connections;
  traffic_.tls = options_.client.tls;
  if (!options_.client.token.empty() || !options_.client.token_file.empty()) {
    token_ = std::make_unique<CurrentToken>(options_.client.token, options_.client.token_file);
    traffic_.token = token_.get();
  }
}

Driver::~Driver() = default;

void Driver::BuildPayloads() {
  protocol_ = MakeCastorProtocol(options_.endpoints, options_.client);
  traffic_.protocol = protocol_.get();
  int64_t bytes = 0;
  for (const ClassSpec& spec : workload_.classes) {
    traffic_.payloads.push_back(protocol_->MakePayloads(spec, workload_.seed));
    for (const Payload& payload : traffic_.payloads.back()) {
      bytes += static_cast<int64_t>(payload.message.size());
    }
    if (bytes > kMaxPayloadBytes) {
      throw cli::UsageError("class '" + spec.name +
                            "': the distinct requests take more than 4 GiB of this machine's "
                            "memory; give it fewer payloads");
    }
  }
}

// Before anything is sent: what a file or a token of this side would fail at.
void Driver::CheckSecurity() const {
  const auto check = [](const absl::Status& status) {
    if (!status.ok()) throw cli::UsageError(std::string(status.message()));
  };
  if (options_.client.tls) check(client::CheckTlsFiles(*options_.client.tls));
  bool tokens = token_ != nullptr;
  if (tokens) check(token_->Refresh());
  for (const ClassSpec& spec : workload_.classes) tokens = tokens || !spec.token.empty();
  if (!tokens) return;
  for (const std::string& endpoint : options_.endpoints) {
    check(client::CheckMaySendToken(options_.client, endpoint));
  }
}

std::string Driver::VersionOf(const std::string& endpoint) const {
  client::ClientOptions options = options_.client;
  options.target = endpoint;
  options.deadline = kConnectPatience;
  const auto info = client::Client(options).GetServerInfo();
  if (info.ok()) return info->version();
  if (info.error().code == grpc::StatusCode::UNAVAILABLE && options.tls) {
    // A connection of our own says more of what TLS did not like.
    Links({endpoint}, 1, {.tls = options.tls}).AwaitAll(kExplainPatience);
  }
  if (info.error().code == grpc::StatusCode::UNAVAILABLE ||
      info.error().code == grpc::StatusCode::DEADLINE_EXCEEDED) {
    const std::string hint = cli::HandshakeHint(info.error().message, options);
    throw ServerError("cannot connect to " + endpoint + ": " +
                      (hint.empty() ? "is the server running there? Set --server" : hint) + ". " +
                      info.error().ToString());
  }
  return "";  // it may be another server, which has no such call
}

void Driver::Prepare() {
  CheckSecurity();
  if (traffic_.payloads.empty()) BuildPayloads();
  for (const std::string& endpoint : options_.endpoints) {
    if (std::string version = VersionOf(endpoint); !version.empty()) {
      server_version_ = std::move(version);
    }
  }
  if (options_.verify_share > 0) references_ = std::make_unique<References>(*protocol_);
  SendAlone(*Connect(options_.endpoints.front(), options_.client.tls));
  traffic_.references = references_.get();
}

void Driver::SendAlone(grpc::Channel& channel) {
  for (size_t cls = 0; cls < workload_.classes.size(); ++cls) {
    const ClassSpec& spec = workload_.classes[cls];
    for (const Payload& payload : traffic_.payloads[cls]) {
      if (token_ != nullptr) (void)token_->Refresh();
      const std::string authorization = !spec.token.empty() ? "Bearer " + spec.token
                                        : token_ != nullptr ? token_->header()
                                                            : "";
      std::string answer;
      const grpc::Status status = CallAndWait(channel, spec, payload, authorization, &answer);
      if (!status.ok()) {
        const bool who = status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
                         status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
        throw ServerError(
            "class '" + spec.name + "': a request alone is answered " +
            client::ParseError(status).ToString() +
            (who ? "; " + cli::AccessHint(status.error_code(), options_.client) : ""));
      }
      ++sent_alone_;
      if (references_ == nullptr) break;  // the first tells whether the class can be served
      references_->Add(spec, cls, workload_.seed, payload, answer);
    }
  }
}

RunData Driver::Empty(const Workload& workload) const {
  RunData run;
  run.workload_toml = ToToml(workload);
  run.client_version = CASTOR_VERSION;
  run.server_version = server_version_;
  run.endpoints = options_.endpoints;
  for (const ClassSpec& spec : workload.classes) {
    run.classes.push_back(spec.name);
    run.objectives.push_back(spec.objective);
    auto& cells = run.cells.emplace_back(options_.endpoints.size());
    for (Cell& cell : cells) cell.above_goal.resize(spec.objective.latencies.size());
  }
  run.asked_seconds = std::chrono::duration<double>(workload.duration).count();
  run.open_loop = !std::holds_alternative<ClosedLoop>(workload.load);
  return run;
}

RunData Driver::Run(const OnProgress& on_progress, const std::atomic<bool>& stop,
                    std::optional<Clock::time_point> begin) {
  return Run(workload_.load, workload_.duration, workload_.warm_up, workload_.seed, on_progress,
             stop, begin);
}

RunData Driver::Run(const decltype(Workload::load)& load, nanoseconds duration, nanoseconds warm_up,
                    uint64_t seed, const OnProgress& on_progress, const std::atomic<bool>& stop,
                    std::optional<Clock::time_point> asked_begin) {
  Workload workload = workload_;
  workload.load = load;
  workload.duration = duration;
  workload.warm_up = warm_up;
  workload.seed = seed;
  RunData run = Empty(workload);

  const auto* closed = std::get_if<ClosedLoop>(&load);
  Schedule schedule;
  if (closed == nullptr) {
    schedule = MakeSchedule(workload, options_.verify_share);
    run.asked_rate = static_cast<double>(CountOwn(schedule, options_)) / run.asked_seconds;
  }
  run.servers = AskServers(options_.metrics, options_.endpoints.size());

  const auto earliest = Clock::now() + kHeadStart + warm_up;
  const Clock::time_point begin = asked_begin.value_or(earliest);
  const auto begin_on_wall = std::chrono::system_clock::now() + (begin - Clock::now());
  run.begun =
      Iso8601(std::chrono::time_point_cast<std::chrono::system_clock::duration>(begin_on_wall));
  std::optional<RequestLog> log;
  if (!options_.request_log.empty()) {
    log.emplace(options_.request_log,
                std::chrono::duration_cast<nanoseconds>(begin_on_wall.time_since_epoch()).count());
  }

  if (token_ != nullptr) (void)token_->Refresh();
  Lanes lanes(traffic_, options_.lanes, log ? &*log : nullptr);
  const size_t streams = lanes.size() * options_.workers;
  for (size_t i = 0; i < lanes.size(); ++i) {
    const size_t stream = options_.worker * lanes.size() + i;
    if (closed == nullptr) {
      lanes.lane(i).StartOpen(schedule, stream, streams, MostInFlight(load), begin);
    } else {
      auto endless = std::make_shared<EndlessSchedule>(workload, options_.verify_share, stream);
      const auto callers = closed->callers;
      const auto share = static_cast<int64_t>(callers / streams + (stream < callers % streams));
      lanes.lane(i).StartClosed([endless] { return endless->Next(); }, share, closed->think_time,
                                begin, begin - warm_up, begin + duration);
    }
  }
  std::future<void> ended = std::async(std::launch::async, [&] { lanes.Await(); });

  // Once a second, say how it goes.
  const Clock::time_point start = Clock::now();
  Progress progress;
  progress.classes = run.classes;
  progress.all.resize(run.classes.size());
  std::vector<std::vector<int64_t>> in_flight;  // by second and class
  double processor_before = ProcessorSeconds();
  double processor_at_begin = processor_before;
  bool stopping = false;
  auto next = begin - std::chrono::duration_cast<seconds>(begin - start);
  while (ended.wait_until(next) != std::future_status::ready) {
    const auto now = Clock::now();
    if (stop.load() && !stopping) {
      lanes.Stop();
      stopping = true;
    }
    if (now < next) continue;
    if (token_ != nullptr) (void)token_->Refresh();
    const double processor = ProcessorSeconds();
    progress.last = lanes.TakeRecent();
    for (size_t cls = 0; cls < run.classes.size(); ++cls) {
      progress.last[cls].in_flight = lanes.in_flight().of(cls);
    }
    if (now >= begin) {
      if (in_flight.empty()) processor_at_begin = processor;
      auto& sample = in_flight.emplace_back();
      for (size_t cls = 0; cls < run.classes.size(); ++cls) {
        sample.push_back(lanes.in_flight().of(cls));
        progress.all[cls].Add(progress.last[cls]);
      }
    }
    const bool warming = now < begin, over = now >= begin + duration;
    progress.phase = warming ? "warming up" : over ? "waiting for the last answers" : "running";
    progress.elapsed_seconds = std::chrono::duration<double>(warming ? now - (begin - warm_up)
                                                             : over  ? now - (begin + duration)
                                                                     : now - begin)
                                   .count();
    progress.total_seconds = std::chrono::duration<double>(warming ? warm_up
                                                           : over  ? nanoseconds(0)
                                                                   : duration)
                                 .count();
    progress.in_flight = lanes.in_flight().all();
    progress.cpu_share = processor - processor_before;
    processor_before = processor;
    if (on_progress) on_progress(progress);
    next += seconds(1);
  }

  const auto end = Clock::now();
  ClientLoad client;
  // The last request may be due, and answered, before the run is over.
  const auto over = stopping ? std::min(end, begin + duration) : begin + duration;
  client.seconds = std::max(0.0, std::chrono::duration<double>(over - begin).count());
  client.cpu_seconds = ProcessorSeconds() - processor_at_begin;
  client.busiest_thread = static_cast<double>(lanes.BusiestThread().count()) /
                          static_cast<double>(NanosBetween(start, end));
  client.threads = static_cast<int>(2 * lanes.size());
  client.unfinished = lanes.in_flight().all();
  client.calibrated_rate = calibrated_rate_;
  lanes.MoveTo(run);
  if (options_.count_alone) {
    run.servers.front().calls[static_cast<size_t>(Outcome::kOk)] += std::exchange(sent_alone_, 0);
  }
  // The first sample is taken at the begin: the i-th second ends at sample i + 1.
  for (size_t i = 0; i + 1 < in_flight.size() && i < run.seconds.size(); ++i) {
    for (size_t cls = 0; cls < run.classes.size(); ++cls) {
      run.seconds[i][cls].in_flight = in_flight[i + 1][cls];
    }
  }
  run.clients.push_back(std::move(client));
  AskAgain(run.servers);
  if (log && !log->Close()) {
    throw cli::UsageError("cannot write all of " + options_.request_log + ": is the disk full?");
  }
  return run;
}

}  // namespace castor::load
