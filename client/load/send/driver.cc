#include "client/load/send/driver.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <sys/resource.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cli/command.h"
#include "client/error.h"
#include "client/load/send/messages.h"
#include "client/load/send/recorder.h"
#include "client/load/send/server_counts.h"

namespace castor::load {
namespace {

using cli::OrUsageError;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

constexpr seconds kConnectTimeout{10};
constexpr std::chrono::milliseconds kHeadStart{200};  // for the lanes' threads to be ready

double ProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Makes a call and waits for its end.
grpc::Status CallAndWait(client::Client& client, const Traffic& traffic, size_t cls,
                         const Payload& payload, std::string* answer) {
  grpc::GenericStub stub(client.channel());
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() +
                       std::max<nanoseconds>(traffic.classes[cls].deadline, seconds(30)));
  traffic.Authorize(cls, client, context);
  grpc::CompletionQueue queue;
  grpc::Status status;
  const auto reader = stub.PrepareUnaryCall(&context, payload.method(),
                                            grpc::ByteBuffer(&payload.message, 1), &queue);
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

// The lanes of a run and their recorders.
class Lanes {
 public:
  Lanes(const Traffic& traffic, const References* references, int count, RequestLog* log)
      : in_flight_(traffic.classes.size()) {
    for (int i = 0; i < count; ++i) {
      recorders_.push_back(std::make_unique<Recorder>(traffic, references, log));
      lanes_.push_back(std::make_unique<Lane>(traffic, *recorders_.back(), in_flight_));
    }
    for (const auto& lane : lanes_) lane->AwaitConnections(kConnectTimeout);
  }

  const InFlight& in_flight() const { return in_flight_; }

  // Lane i of this process sends stream share * lanes + i of shares * lanes.
  void Start(const Workload& workload, const std::vector<Planned>& schedule,
             const DriveOptions& options, Clock::time_point begin) {
    const size_t streams = lanes_.size() * static_cast<size_t>(options.shares);
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const size_t stream = static_cast<size_t>(options.share) * lanes_.size() + i;
      recorders_[i]->SetBegin(begin);
      if (const auto* open = std::get_if<OpenLoop>(&workload.load)) {
        lanes_[i]->StartOpen(schedule, stream, streams, open->max_in_flight, begin);
        continue;
      }
      const auto& closed = std::get<ClosedLoop>(workload.load);
      const auto callers = static_cast<size_t>(closed.callers);
      const size_t own = callers / streams + (stream < callers % streams ? 1 : 0);
      lanes_[i]->StartClosed(Picker(workload, options.verify_share, stream),
                             static_cast<int64_t>(own), closed.think_time, begin,
                             begin - workload.warm_up, begin + workload.duration);
    }
  }
  void Stop() {
    for (const auto& lane : lanes_) lane->Stop();
  }
  void Await() {
    for (const auto& lane : lanes_) lane->Await();
    for (const auto& recorder : recorders_) recorder->Finish();
  }
  nanoseconds BusiestThread() const {
    nanoseconds most{0};
    for (const auto& lane : lanes_) most = std::max(most, lane->BusiestThread());
    return most;
  }
  Second TakeRecent() {
    Second recent;
    for (const auto& recorder : recorders_) {
      for (const Second& of_class : recorder->TakeRecent()) recent.Add(of_class);
    }
    recent.in_flight = in_flight_.all();
    return recent;
  }
  void AddTo(RunData& run) {
    for (const auto& recorder : recorders_) recorder->AddTo(run);
  }

 private:
  InFlight in_flight_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace

Driver::Driver(Workload workload, DriveOptions options)
    : workload_(std::move(workload)), options_(std::move(options)), metrics_(options_.metrics) {
  traffic_.classes = workload_.classes;
  traffic_.endpoints = options_.endpoints;
  traffic_.connections = options_.connections;
  traffic_.client = options_.client;
  for (const ClassSpec& spec : workload_.classes) {
    traffic_.tokens.push_back(spec.token_file.empty()
                                  ? nullptr
                                  : std::make_shared<client::TokenSource>("", spec.token_file));
  }
  metrics_.resize(options_.endpoints.size());
}

// Checks TLS files and tokens before anything is sent.
void Driver::CheckSecurity() {
  if (options_.client.tls) OrUsageError(client::CheckTlsFiles(*options_.client.tls));
  client::TokenSource common(options_.client.token, options_.client.token_file);
  OrUsageError(common.Header().status());
  bool tokens = !common.empty();
  for (const auto& own : traffic_.tokens) {
    if (own == nullptr) continue;
    OrUsageError(own->Header().status());
    tokens = true;
  }
  if (!tokens) return;
  for (const std::string& endpoint : options_.endpoints) {
    OrUsageError(client::CheckMaySendToken(options_.client, endpoint));
  }
}

void Driver::QueryServer(const std::string& endpoint) {
  client::ClientOptions options = options_.client;
  options.target = endpoint;
  options.deadline = kConnectTimeout;
  const auto info = client::Client(options).GetServerInfo();
  const auto index = static_cast<size_t>(&endpoint - options_.endpoints.data());
  if (info.ok()) {
    server_version_ = info->version();
    server_setting_ = "models " + absl::StrJoin(info->models(), ", ");
    for (const v1::Device& device : info->devices()) {
      server_setting_ += "; " + device.name() + ": " + device.description() + ", " +
                         std::to_string(device.threads()) + " threads, " + device.backend();
    }
    if (metrics_[index].empty()) metrics_[index] = MetricsOf(endpoint, info->metrics_address());
    return;
  }
  const grpc::StatusCode code = info.error().code;
  if (code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED) {
    const std::string hint = cli::HandshakeHint(info.error().message, options);
    throw ServerError("cannot connect to " + endpoint + ": " +
                      (hint.empty() ? "is the server running there? Set --server" : hint) + ". " +
                      info.error().ToString());
  }
  // Another kind of server may lack this call.
}

void Driver::Prepare() {
  CheckSecurity();
  traffic_.payloads = MakePayloads(workload_.classes, workload_.seed);
  for (const std::string& endpoint : options_.endpoints) QueryServer(endpoint);
  if (options_.verify_share > 0) references_ = std::make_unique<References>();
  SendAlone();
}

void Driver::SendAlone() {
  client::ClientOptions options = options_.client;
  options.target = options_.endpoints.front();
  client::Client client(options);
  for (size_t cls = 0; cls < workload_.classes.size(); ++cls) {
    const ClassSpec& spec = workload_.classes[cls];
    for (const Payload& payload : traffic_.payloads[cls]) {
      std::string answer;
      const grpc::Status status = CallAndWait(client, traffic_, cls, payload, &answer);
      if (!status.ok()) {
        const client::Error error = client::ParseError(status);
        // Other load fills the server's queue, but the class can be served.
        if (references_ == nullptr && error.reason == "QUEUE_FULL") break;
        const bool who = status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
                         status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
        const std::string hint = who ? cli::AccessHint(status.error_code(), options_.client) : "";
        throw ServerError("class '" + spec.name + "': a single request failed: " +
                          error.ToString() + (hint.empty() ? "" : "; " + hint));
      }
      if (references_ == nullptr) break;  // the first shows that the class can be served
      references_->Add(cls, payload, answer);
    }
  }
}

RunData Driver::MakeRunData(const Workload& workload) const {
  RunData run;
  run.client_version = CASTOR_VERSION;
  run.server_version = server_version_;
  run.server_setting = server_setting_;
  run.endpoints = options_.endpoints;
  for (const ClassSpec& spec : workload.classes) {
    run.classes.push_back(spec.name);
    run.objectives.push_back(spec.objective);
    auto& cells = run.cells.emplace_back(options_.endpoints.size());
    for (Cell& cell : cells) cell.above_goal.resize(spec.objective.latencies.size());
  }
  run.servers.resize(options_.endpoints.size());
  run.asked_seconds = InSeconds(workload.duration);
  run.open_loop = std::holds_alternative<OpenLoop>(workload.load);
  if (run.open_loop) {
    run.asked_rate = std::get<OpenLoop>(workload.load).rate / static_cast<double>(options_.shares);
  }
  run.seed = workload.seed;
  return run;
}

RunData Driver::Run(const Load& load, nanoseconds duration, nanoseconds warm_up, uint64_t seed,
                    const OnProgress& on_progress, const std::atomic<bool>& stop) {
  Workload workload = workload_;
  workload.load = load;
  workload.duration = duration;
  workload.warm_up = warm_up;
  workload.seed = seed;
  RunData run = MakeRunData(workload);
  std::vector<Planned> schedule;
  if (run.open_loop) schedule = MakeSchedule(workload, options_.verify_share);

  std::vector<ServerReading> readings;
  const bool ask = options_.ask_metrics && options_.shares == 1;
  for (const std::string& address : metrics_) readings.emplace_back(ask ? address : "");

  std::optional<RequestLog> log;
  if (!options_.request_log.empty()) log.emplace(options_.request_log);
  Lanes lanes(traffic_, references_.get(), options_.lanes, log ? &*log : nullptr);
  const Clock::time_point start = Clock::now();
  Clock::time_point begin = start + kHeadStart + warm_up;
  auto begin_on_wall = std::chrono::time_point_cast<system_clock::duration>(system_clock::now() +
                                                                            kHeadStart + warm_up);
  if (options_.begin) {
    begin += *options_.begin - begin_on_wall;
    begin_on_wall = *options_.begin;
    if (begin < start + warm_up) {
      throw cli::UsageError("--begin-at: it leaves no time for the warm-up; set a later time");
    }
  }
  run.begun =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromChrono(begin_on_wall), absl::UTCTimeZone());
  if (log) log->Begin(begin_on_wall.time_since_epoch() / nanoseconds(1));
  lanes.Start(workload, schedule, options_, begin);
  std::future<void> ended = std::async(std::launch::async, [&] { lanes.Await(); });

  // Report progress once a second.
  std::vector<std::vector<int64_t>> in_flight;  // by second and class
  double processor_before = ProcessorSeconds(), processor_at_begin = processor_before;
  bool stopping = false;
  auto next = begin - std::chrono::duration_cast<seconds>(begin - start);
  while (ended.wait_until(std::min(next, Clock::now() + std::chrono::milliseconds(100))) !=
         std::future_status::ready) {
    const auto now = Clock::now();
    if (stop.load() && !std::exchange(stopping, true)) lanes.Stop();
    if (now < next) continue;
    next += seconds(1);
    const bool warming = now < begin, over = now >= begin + duration;
    const double processor = ProcessorSeconds();
    if (!warming) {
      if (in_flight.empty()) processor_at_begin = processor;
      auto& sample = in_flight.emplace_back();
      for (size_t cls = 0; cls < run.classes.size(); ++cls) {
        sample.push_back(lanes.in_flight().of(cls));
      }
    }
    const auto phase_began = warming ? begin - warm_up : over ? begin + duration : begin;
    Progress progress = {.phase = warming ? "warming up"
                                  : over  ? "waiting"
                                          : "running",
                         .elapsed_seconds = std::max(0.0, InSeconds(now - phase_began)),
                         .total_seconds = InSeconds(warming ? warm_up
                                                    : over  ? nanoseconds(0)
                                                            : duration),
                         .last = lanes.TakeRecent(),
                         .in_flight = lanes.in_flight().all(),
                         .cpu_share = processor - std::exchange(processor_before, processor)};
    if (on_progress) on_progress(progress);
  }

  const auto end = Clock::now();
  ClientLoad client = {.share = options_.share, .shares = options_.shares};
  // The last answer may come before the run's end.
  const auto over = stopping ? std::min(end, begin + duration) : begin + duration;
  client.seconds = std::max(0.0, InSeconds(over - begin));
  client.cpu_seconds = ProcessorSeconds() - processor_at_begin;
  client.busiest_thread = static_cast<double>(lanes.BusiestThread().count()) /
                          static_cast<double>(std::max<int64_t>(1, NanosBetween(start, end)));
  lanes.AddTo(run);
  // The first sample is from the begin, so second i ends at sample i + 1.
  for (size_t i = 0; i + 1 < in_flight.size() && i < run.seconds.size(); ++i) {
    for (size_t cls = 0; cls < run.classes.size(); ++cls) {
      run.seconds[i][cls].in_flight = in_flight[i + 1][cls];
    }
  }
  run.clients.push_back(client);
  for (size_t i = 0; i < readings.size(); ++i) readings[i].Finish(&run.servers[i]);
  if (log && !log->Close()) {
    throw cli::UsageError("cannot write all of " + options_.request_log + ": is the disk full?");
  }
  return run;
}

}  // namespace castor::load
