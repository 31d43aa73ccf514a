#include "client/load/send/recorder.h"

#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/command.h"
#include "client/error.h"
#include "client/load/send/messages.h"

namespace castor::load {
namespace {

constexpr size_t kMaxMessageWidth = 160;  // characters
constexpr size_t kQuickBytes = 64 << 10;  // takes microseconds to read
// Bytes of answers that may wait to be read; beyond, the lane's own thread reads.
constexpr size_t kMaxWaiting = size_t{256} << 20;

// The kind of an error: its text with `#` for numbers.
std::string KindOf(const client::Error& error) {
  std::string text(client::NameOf(error.code));
  if (!error.reason.empty()) text += " " + error.reason;
  if (!error.field.empty()) text += " at " + error.field;
  text += ": ";
  bool in_number = false;
  for (const char c : error.message) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0 || (in_number && c == '.');
    if (!digit) text += c;
    if (digit && !in_number) text += '#';
    in_number = digit;
  }
  return cli::FitText(text, kMaxMessageWidth);
}

int64_t Nanoseconds(double us) {
  return std::isfinite(us) && us > 0 && us < 1e12 ? static_cast<int64_t>(us * 1000) : 0;
}

void RecordStages(const AnswerFacts& facts, int64_t service_ns, Stages& stages) {
  stages.queue.Record(Nanoseconds(facts.queue_us));
  stages.compute.Record(Nanoseconds(facts.compute_us));
  stages.server.Record(Nanoseconds(facts.total_us));
  stages.network.Record(std::max<int64_t>(0, service_ns - Nanoseconds(facts.total_us)));
}

}  // namespace

RequestLog::RequestLog(const std::string& file) : file_(std::fopen(file.c_str(), "we")) {
  if (file_ == nullptr) {
    throw cli::UsageError("cannot write " + file + ": " + std::strerror(errno));
  }
}

void RequestLog::Begin(int64_t unix_ns) {
  std::fprintf(file_, "{\"begin_unix_ns\":%" PRId64 "}\n", unix_ns);
}

void RequestLog::Write(const std::string& cls, size_t endpoint, Outcome outcome, int64_t at_ns,
                       int64_t sent_ns, int64_t done_ns) {
  const std::string name = nlohmann::json(cls).dump();
  const std::lock_guard lock(mu_);
  if (file_ == nullptr) return;
  const int written =
      std::fprintf(file_,
                   "{\"intended_ns\":%" PRId64 ",\"sent_ns\":%" PRId64 ",\"done_ns\":%" PRId64
                   ",\"class\":%s,\"endpoint\":%zu,\"outcome\":\"%s\"}\n",
                   at_ns, sent_ns, done_ns, name.c_str(), endpoint, NameOf(outcome));
  failed_ = failed_ || written < 0;
}

bool RequestLog::Close() {
  const std::lock_guard lock(mu_);
  if (file_ == nullptr) return !failed_;
  failed_ = std::fclose(file_) != 0 || failed_;
  file_ = nullptr;
  return !failed_;
}

Outcome OutcomeOf(const EndedCall& call, std::chrono::nanoseconds deadline, std::string* message) {
  if (call.status.ok()) return Outcome::kOk;
  const client::Error error = client::ParseError(call.status);
  if (error.code == grpc::StatusCode::CANCELLED && call.planned.cancel_after_ns >= 0) {
    return Outcome::kCancelled;
  }
  *message = KindOf(error);
  // gRPC's timers count milliseconds, and may end a call up to one early.
  const bool late = call.done - call.due >= deadline - std::chrono::milliseconds(1);
  switch (error.code) {
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Outcome::kRefused;
    case grpc::StatusCode::UNAVAILABLE:  // without a reason, the connection failed
      return error.reason.empty() ? Outcome::kFailed : Outcome::kRefused;
    case grpc::StatusCode::DEADLINE_EXCEEDED:  // a server may refuse calls that would be late
      return late ? Outcome::kExpired : Outcome::kRefused;
    case grpc::StatusCode::CANCELLED:  // the code of gRPC servers when a deadline passes
      return late ? Outcome::kExpired : Outcome::kFailed;
    default:
      return Outcome::kFailed;
  }
}

Recorder::Recorder(const Traffic& traffic, const References* references, RequestLog* log)
    : traffic_(traffic),
      references_(references),
      log_(log),
      cells_(traffic.classes.size(), std::vector<Cell>(traffic.endpoints.size())),
      recent_(traffic.classes.size()),
      calls_(traffic.endpoints.size()),
      worker_([this] { Work(); }) {
  for (size_t cls = 0; cls < cells_.size(); ++cls) {
    for (Cell& cell : cells_[cls]) {
      cell.above_goal.resize(traffic.classes[cls].objective.latencies.size());
    }
  }
}

bool Recorder::IsSlowToRead(const EndedCall& call) const {
  if (!call.status.ok()) return false;
  return (call.planned.verify && references_ != nullptr) || call.answer.Length() > kQuickBytes;
}

void Recorder::Ended(EndedCall call) {
  if (IsSlowToRead(call)) {
    const std::lock_guard lock(waiting_mu_);
    if (waiting_bytes_ + call.answer.Length() <= kMaxWaiting) {
      waiting_bytes_ += call.answer.Length();
      waiting_.push_back(std::move(call));
      changed_.notify_one();
      return;
    }
  }
  Record(call);
}

void Recorder::Work() {
  pthread_setname_np(pthread_self(), "reader");
  std::unique_lock lock(waiting_mu_);
  while (true) {
    changed_.wait(lock, [this] { return finished_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const EndedCall call = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= call.answer.Length();
    lock.unlock();
    Record(call);
    lock.lock();
  }
}

void Recorder::Finish() {
  {
    const std::lock_guard lock(waiting_mu_);
    finished_ = true;
    changed_.notify_one();
  }
  if (worker_.joinable()) worker_.join();
}

Second& Recorder::SecondOf(uint16_t cls, int64_t at_ns) {
  const auto second = static_cast<size_t>(at_ns / 1'000'000'000);
  while (seconds_.size() <= second) seconds_.emplace_back(traffic_.classes.size());
  return seconds_[second][cls];
}

void Recorder::RecordOk(const EndedCall& call, const AnswerFacts& facts, Cell& cell,
                        Second& second) {
  const Planned& planned = call.planned;
  const Payload& payload = traffic_.payloads[planned.cls][planned.payload];
  const int64_t latency = NanosBetween(call.due, call.done);
  const int64_t service = NanosBetween(call.sent, call.done);
  cell.intended.Record(latency);
  cell.service.Record(service);
  second.intended.Record(latency);
  recent_[planned.cls].intended.Record(latency);
  const std::vector<LatencyGoal>& goals = traffic_.classes[planned.cls].objective.latencies;
  bool good = true;
  for (size_t i = 0; i < goals.size(); ++i) {
    if (latency <= goals[i].limit.count()) continue;
    ++cell.above_goal[i];
    good = false;
  }
  cell.good += good ? 1 : 0;
  second.good += good ? 1 : 0;
  cell.tokens += payload.tokens > 0 ? payload.tokens : facts.tokens;
  if (!facts.kernel.empty()) ++cell.kernels[facts.kernel];
  if (facts.timed) RecordStages(facts, service, cell.stages);
}

void Recorder::Record(const EndedCall& call) {
  const Planned& planned = call.planned;
  const Payload& payload = traffic_.payloads[planned.cls][planned.payload];
  std::string message;
  Outcome outcome = OutcomeOf(call, traffic_.classes[planned.cls].deadline, &message);
  AnswerFacts facts;
  Match match = Match::kNotAsked;
  if (outcome == Outcome::kOk) {
    grpc::Slice slice;
    (void)call.answer.DumpToSingleSlice(&slice);  // an OK call has an answer
    const std::string_view answer(reinterpret_cast<const char*>(slice.begin()), slice.size());
    facts = ReadAnswer(payload.encode, answer);
    if (!facts.readable) {
      outcome = Outcome::kFailed;
      message = "OK, but the answer cannot be read";
    } else if (planned.verify && references_ != nullptr) {
      match = references_->Compare(planned.cls, planned.payload, payload.encode, facts.elements);
    }
  }
  const std::lock_guard lock(mu_);
  ++calls_[call.endpoint][static_cast<size_t>(outcome)];
  if (planned.at_ns < 0) return;  // warming up
  if (log_ != nullptr) {
    log_->Write(traffic_.classes[planned.cls].name, call.endpoint, outcome, planned.at_ns,
                NanosBetween(begin_, call.sent), NanosBetween(begin_, call.done));
  }
  Cell& cell = cells_[planned.cls][call.endpoint];
  Second& second = SecondOf(planned.cls, planned.at_ns);
  if (!message.empty()) cell.CountMessage(message, 1);
  for (auto* outcomes : {&cell.outcomes, &second.outcomes, &recent_[planned.cls].outcomes}) {
    ++(*outcomes)[static_cast<size_t>(outcome)];
  }
  cell.lag.Record(std::max<int64_t>(0, NanosBetween(call.due, call.sent)));
  if (outcome == Outcome::kOk) {
    RecordOk(call, facts, cell, second);
  } else if (outcome != Outcome::kCancelled) {
    for (int64_t& above : cell.above_goal) ++above;
  }
  if (match == Match::kNotAsked) return;
  ++(match == Match::kEqual ? cell.verified.equal : cell.verified.different);
}

void Recorder::Dropped(const Planned& planned) {
  constexpr auto kDropped = static_cast<size_t>(Outcome::kDropped);
  const std::lock_guard lock(mu_);
  if (planned.at_ns < 0) return;
  if (log_ != nullptr) {
    const int64_t now = NanosBetween(begin_, Clock::now());
    log_->Write(traffic_.classes[planned.cls].name, 0, Outcome::kDropped, planned.at_ns, now, now);
  }
  Cell& cell = cells_[planned.cls][0];
  ++cell.outcomes[kDropped];
  for (int64_t& above : cell.above_goal) ++above;
  ++SecondOf(planned.cls, planned.at_ns).outcomes[kDropped];
  ++recent_[planned.cls].outcomes[kDropped];
}

std::vector<Second> Recorder::TakeRecent() {
  std::vector<Second> fresh(traffic_.classes.size());
  const std::lock_guard lock(mu_);
  return std::exchange(recent_, std::move(fresh));
}

void Recorder::AddTo(RunData& run) {
  const std::lock_guard lock(mu_);
  for (size_t cls = 0; cls < cells_.size(); ++cls) {
    for (size_t endpoint = 0; endpoint < cells_[cls].size(); ++endpoint) {
      run.cells[cls][endpoint].Add(cells_[cls][endpoint]);
    }
  }
  while (run.seconds.size() < seconds_.size()) {
    run.seconds.emplace_back(traffic_.classes.size());
  }
  for (size_t second = 0; second < seconds_.size(); ++second) {
    for (size_t cls = 0; cls < cells_.size(); ++cls) {
      run.seconds[second][cls].Add(seconds_[second][cls]);
    }
  }
  for (size_t endpoint = 0; endpoint < calls_.size(); ++endpoint) {
    for (size_t i = 0; i < kOutcomes; ++i) run.servers[endpoint].calls[i] += calls_[endpoint][i];
  }
}

}  // namespace castor::load
