#include "tests/bench/load/bench.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "client/error.h"
#include "client/load/send/messages.h"
#include "client/metrics/fetch.h"
#include "tests/bench/command_line.h"

namespace castor::bench {
namespace {

// Collects what became of calls.
class Outcomes : public load::Sink {
 public:
  void Ended(load::EndedCall call) override {
    Outcome outcome = {.intended = call.due,
                       .sent = call.sent,
                       .ended = call.done,
                       .code = call.status.error_code()};
    if (!call.status.ok()) outcome.reason = client::ParseError(call.status).reason;
    const std::lock_guard lock(mu_);
    calls_.push_back(std::move(outcome));
  }
  void Dropped(const load::Planned&) override {}

  std::vector<Outcome> Take() { return std::move(calls_); }

 private:
  std::mutex mu_;
  std::vector<Outcome> calls_;
};

// One class of traffic, as the library takes it.
struct OneClass {
  load::Workload workload;
  load::Traffic traffic;

  OneClass(const Server& server, const Traffic& of, const load::Load& load, Seconds length) {
    load::ClassSpec spec;
    spec.deadline = of.deadline;
    spec.tenant = of.tenant;
    spec.payloads = static_cast<int64_t>(of.payloads.size());
    if (of.cancel_after) {
      spec.cancel_share = 1;
      spec.cancel_after = *of.cancel_after;
    }
    workload.classes = {spec};
    workload.load = load;
    workload.duration = std::chrono::duration_cast<std::chrono::nanoseconds>(length);
    workload.warm_up = std::chrono::seconds(0);
    workload.seed = of.seed;
    traffic.classes = workload.classes;
    traffic.payloads = {of.payloads};
    traffic.endpoints = {server.address()};
    traffic.connections = of.connections;
    traffic.tokens.resize(1);
  }
};

Calls Made(Outcomes& outcomes, const OneClass& one, Clock::time_point begin) {
  Calls calls = {.begin = begin,
                 .length = one.workload.duration,
                 .deadline = one.workload.classes[0].deadline,
                 .calls = outcomes.Take()};
  return calls;
}

cpu_set_t Allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}

// Threads have been started already, so each is asked for. Later ones inherit.
void RunAllThreadsOn(const cpu_set_t& set) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    sched_setaffinity(std::atoi(task.path().filename().c_str()), sizeof(set), &set);
  }
}

std::string ValueOf(const std::string& line, const std::string& key) {
  const size_t at = line.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  return line.substr(begin, line.find_first_of(" \n", begin) - begin);
}

}  // namespace

// ---- report

std::string Figure(double value, std::string_view unit) {
  const double size = std::abs(value);
  const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 || size == 0 ? 2 : 3;
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f%s%.*s", decimals, value, unit.empty() ? "" : " ",
                static_cast<int>(unit.size()), unit.data());
  return text;
}

std::string Figures(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + Figure(value);
  return text;
}

void Report::Row(const std::string& what, const std::string& measured, const std::string& bound,
                 std::optional<bool> pass) {
  if (pass) ++(*pass ? passed_ : missed_);
  std::printf("| %s | %s | %s | %s | %s |\n", scenario_.c_str(), what.c_str(), measured.c_str(),
              bound.c_str(),
              !pass   ? ""
              : *pass ? "pass"
                      : "**miss**");
  std::fflush(stdout);
}

void Report::AtMost(const std::string& what, double value, double bound, std::string_view unit) {
  Row(what, Figure(value, unit), "≤ " + Figure(bound, unit), value <= bound);
}
void Report::AtLeast(const std::string& what, double value, double bound, std::string_view unit) {
  Row(what, Figure(value, unit), "≥ " + Figure(bound, unit), value >= bound);
}
void Report::Check(const std::string& what, bool holds, const std::string& measured) {
  Row(what, measured, "", holds);
}
void Report::Note(const std::string& what, const std::string& measured) {
  Row(what, measured, "", {});
}

// ---- server

PinnedTo::PinnedTo(int cpu) : before_(Allowed()) {
  if (cpu < 0) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  RunAllThreadsOn(one);
}

PinnedTo::~PinnedTo() { RunAllThreadsOn(before_); }

Server::Server(const std::string& program, std::vector<std::string> flags, int cpu) {
  flags.insert(flags.begin(), {"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
                               "--device", "cpu", "--cost-model-budget", "0s"});
  {
    const PinnedTo there(cpu);  // which the server inherits
    process_ = std::make_unique<testing::ServerProcess>(flags, std::vector<std::string>(), program);
  }
  const std::string line = process_->AwaitLine(" listening ");
  address_ = ValueOf(line, "grpc=");
  metrics_ = ValueOf(line, "metrics=");
  if (address_.empty()) Die(process_->output() + "\n" + program + " did not start");
}

client::MetricsPage Server::Metrics() const { return client::FetchMetrics(metrics_); }

std::chrono::nanoseconds Server::CpuTime() const {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(process_->pid(), &clock) != 0) return {};
  if (clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void Server::CheckNothingLeftBehind(Report& report) const {
  std::string left;
  for (int attempt = 0; attempt < 40; ++attempt) {
    left.clear();
    const client::MetricsPage page = Metrics();
    if (page.empty()) left = "no metrics";
    for (const auto& [name, value] : page) {
      const bool gauge =
          name.starts_with("castor_inflight_") || name.starts_with("castor_queue_depth");
      if (gauge && value != 0) left += name + " " + Figure(value) + " ";
    }
    if (left.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  report.Check("gauges of work are back at zero", left.empty(), left.empty() ? "all" : left);
}

void Server::CheckDrain(Report& report) {
  process_->Signal(SIGTERM);
  const int code = process_->Wait();
  report.Check("the drained server's exit code", code == 0, std::to_string(code));
}

// ---- requests

Payload Attend(int64_t tokens, int64_t heads, int64_t head_dim, uint64_t seed) {
  load::ClassSpec spec;
  spec.call =
      load::AttendSpec{.lengths = load::FixedLength{tokens}, .heads = heads, .head_dim = head_dim};
  return {.message = grpc::Slice(load::MakeAttend(spec, seed).SerializeAsString()),
          .tokens = tokens};
}

Payload Encode(const std::vector<std::string>& texts) {
  v1::EncodeRequest request;
  for (const std::string& text : texts) request.mutable_texts()->add_texts(text);
  return {.encode = true, .message = grpc::Slice(request.SerializeAsString())};
}

std::vector<Payload> ShortAttends(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Payload> payloads;
  for (int i = 0; i < count; ++i) {
    payloads.push_back(Attend(64 + static_cast<int64_t>(random() % 449), 4, 64, random()));
  }
  return payloads;
}

std::vector<Payload> ShortTexts(int count, uint64_t seed) {
  load::ClassSpec spec;
  spec.payloads = count;
  spec.call = load::EncodeSpec{.lengths = load::UniformLength{8, 20}};
  return load::MakePayloads({spec}, seed).front();
}

// ---- runs

void Calls::Append(const Calls& more) {
  length += more.length;
  deadline = more.deadline;
  calls.insert(calls.end(), more.calls.begin(), more.calls.end());
}

std::vector<double> Calls::Latencies() const {
  std::vector<double> latencies;
  for (const Outcome& call : calls) {
    const bool ok = call.code == grpc::StatusCode::OK;
    latencies.push_back(Milliseconds(ok ? call.ended - call.intended : deadline));
  }
  return latencies;
}

double Calls::P99Lag() const {
  std::vector<double> lags;
  for (const Outcome& call : calls) lags.push_back(Milliseconds(call.sent - call.intended));
  return Quantile(std::move(lags), 0.99);
}

std::string Calls::Codes() const {
  std::map<std::string, int64_t> codes;
  for (const Outcome& call : calls) {
    std::string name(client::NameOf(call.code));
    if (!call.reason.empty() && call.reason != name) name += " " + call.reason;
    ++codes[name];
  }
  std::string text;
  for (const auto& [name, count] : codes) {
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
  }
  return text.empty() ? "none" : text;
}

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto last = static_cast<double>(values.size() - 1);
  const auto nth = values.begin() + static_cast<ptrdiff_t>(std::ceil(q * last));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

Calls RunOpen(const Server& server, const Traffic& traffic, double rate, Seconds length,
              bool constant, const std::atomic<bool>* stop) {
  const OneClass one(server, traffic, load::OpenLoop{.rate = rate, .constant = constant}, length);
  const std::vector<load::Planned> schedule = load::MakeSchedule(one.workload, 0);
  Outcomes outcomes;
  load::InFlight in_flight(1);
  load::Lane lane(one.traffic, outcomes, in_flight);
  lane.AwaitConnections(std::chrono::seconds(30));
  const Clock::time_point begin = Clock::now() + std::chrono::milliseconds(20);
  lane.StartOpen(schedule, 0, 1, 0, begin);
  while (stop != nullptr && !stop->load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (stop != nullptr) lane.Stop();
  lane.Await();
  Calls calls = Made(outcomes, one, begin);
  if (stop == nullptr) return calls;
  std::erase_if(calls.calls,
                [](const Outcome& call) { return call.code == grpc::StatusCode::CANCELLED; });
  calls.length = std::min(calls.length, Seconds(Clock::now() - begin));
  return calls;
}

Calls RunClosed(const Server& server, const Traffic& traffic, int callers, Seconds length) {
  const OneClass one(server, traffic, load::ClosedLoop{.callers = callers}, length);
  Outcomes outcomes;
  load::InFlight in_flight(1);
  load::Lane lane(one.traffic, outcomes, in_flight);
  lane.AwaitConnections(std::chrono::seconds(30));
  const Clock::time_point begin = Clock::now();
  lane.StartClosed(load::Picker(one.workload, 0, 0), callers, std::chrono::nanoseconds(0), begin,
                   begin, begin + one.workload.duration);
  lane.Await();
  return Made(outcomes, one, begin);
}

double Capacity(const Server& server, const Traffic& traffic, int callers, Seconds length) {
  const Calls calls = RunClosed(server, traffic, callers, length);
  const Clock::time_point end =
      calls.begin + std::chrono::duration_cast<Clock::duration>(calls.length);
  const auto ok = std::count_if(calls.calls.begin(), calls.calls.end(), [&](const Outcome& call) {
    return call.code == grpc::StatusCode::OK && call.ended < end;
  });
  return static_cast<double>(ok) / length.count();
}

}  // namespace castor::bench
