#include "client/load/drive/recorder.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <utility>

#include "client/cli/report.h"
#include "client/error.h"

namespace castor::load {
namespace {

constexpr size_t kMaxMessages = 32;       // kinds of errors that are told apart, in each cell
constexpr size_t kMaxMessageWidth = 160;  // characters
constexpr std::chrono::nanoseconds kTimerGrain{1'000'000};  // of deadlines in gRPC
constexpr double kPredictedWithin = 0.25;
constexpr double kErrorUnit = 1e9;  // Verified::error_e9

// The error as a kind: what varies from call to call is left out.
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
  return cli::Shorten(text, kMaxMessageWidth);
}

void CountMessage(std::string message, std::map<std::string, int64_t>& messages) {
  if (messages.size() >= kMaxMessages && !messages.contains(message)) message = "others";
  ++messages[std::move(message)];
}

int64_t Nanoseconds(double us) {
  return std::isfinite(us) && us > 0 && us < 1e12 ? static_cast<int64_t>(us * 1000) : 0;
}

void RecordStages(const AnswerFacts& facts, int64_t service_ns, Stages& stages) {
  stages.decode.Record(Nanoseconds(facts.decode_us));
  stages.queue.Record(Nanoseconds(facts.queue_us));
  stages.copy_in.Record(Nanoseconds(facts.copy_in_us));
  stages.compute.Record(Nanoseconds(facts.compute_us));
  stages.copy_out.Record(Nanoseconds(facts.copy_out_us));
  stages.server.Record(Nanoseconds(facts.total_us));
  stages.network.Record(std::max<int64_t>(0, service_ns - Nanoseconds(facts.total_us)));
  if (facts.predicted_us <= 0 || facts.measured_us <= 0) return;
  ++stages.predicted;
  const double ratio = facts.predicted_us / facts.measured_us;
  if (ratio >= 1 - kPredictedWithin && ratio <= 1 + kPredictedWithin) ++stages.predicted_within;
}

void RecordMatch(const Ended& ended, Verified& verified) {
  if (ended.match == Match::kNotAsked) return;
  ++verified.asked;
  if (ended.match == Match::kDifferent) {
    ++verified.different;
    return;
  }
  ++verified.equal;
  if (ended.exact_error < 0) return;
  ++verified.recomputed;
  verified.error_e9.Record(static_cast<int64_t>(std::min(ended.exact_error, 1e3) * kErrorUnit));
}

// How a request ended; `message` is the kind of its error, if it was one.
Outcome Classify(const Ended& ended, std::chrono::nanoseconds deadline, std::string& message) {
  if (ended.status->ok()) {
    if (ended.facts.readable) return Outcome::kOk;
    message = "OK, but the answer cannot be read";
    return Outcome::kFailed;
  }
  const client::Error error = client::ParseError(*ended.status);
  if (error.code == grpc::StatusCode::CANCELLED && ended.cancelled) return Outcome::kCancelled;
  message = KindOf(error);
  switch (error.code) {
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Outcome::kRefused;
    case grpc::StatusCode::UNAVAILABLE:  // without a reason, it is the connection that failed
      return error.reason.empty() ? Outcome::kFailed : Outcome::kRefused;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return Outcome::kExpired;
    case grpc::StatusCode::CANCELLED:  // what a gRPC server says when a deadline passes
      return ended.done_ns - ended.at_ns + kTimerGrain.count() >= deadline.count()
                 ? Outcome::kExpired
                 : Outcome::kFailed;
    default:
      return Outcome::kFailed;
  }
}

}  // namespace

Recorder::Recorder(const Workload& workload, size_t endpoints, RequestLog* log)
    : workload_(workload),
      log_(log),
      cells_(workload.classes.size(), std::vector<Cell>(endpoints)),
      recent_(workload.classes.size()),
      calls_(endpoints) {
  for (size_t cls = 0; cls < cells_.size(); ++cls) {
    for (Cell& cell : cells_[cls]) {
      cell.above_goal.resize(workload.classes[cls].objective.latencies.size());
    }
  }
}

Second& Recorder::SecondOf(uint16_t cls, int64_t at_ns) {
  const auto second = static_cast<size_t>(at_ns / 1'000'000'000);
  while (seconds_.size() <= second) seconds_.emplace_back(workload_.classes.size());
  return seconds_[second][cls];
}

void Recorder::RecordOk(const Ended& ended, int64_t latency, Cell& cell, Second& second) {
  const int64_t service = ended.done_ns - ended.sent_ns;
  cell.intended.Record(latency);
  cell.service.Record(service);
  second.intended.Record(latency);
  recent_[ended.cls].intended.Record(latency);
  const std::vector<LatencyGoal>& goals = workload_.classes[ended.cls].objective.latencies;
  bool good = true;
  for (size_t i = 0; i < goals.size(); ++i) {
    if (latency <= goals[i].limit.count()) continue;
    ++cell.above_goal[i];
    good = false;
  }
  if (good) {
    ++cell.good;
    ++second.good;
    ++recent_[ended.cls].good;
  }
  cell.tokens += ended.payload->tokens > 0 ? ended.payload->tokens : ended.facts.tokens;
  cell.sequences += ended.payload->sequences;
  if (!ended.facts.kernel.empty()) ++cell.kernels[ended.facts.kernel];
  if (ended.facts.timed) RecordStages(ended.facts, service, cell.stages);
  RecordMatch(ended, cell.verified);
}

void Recorder::Record(const Ended& ended) {
  std::string message;
  const Outcome outcome = Classify(ended, workload_.classes[ended.cls].deadline, message);
  const std::lock_guard lock(mu_);
  ++calls_[ended.endpoint][static_cast<size_t>(outcome)];
  if (ended.at_ns < 0) return;  // warming up
  Cell& cell = cells_[ended.cls][ended.endpoint];
  Second& second = SecondOf(ended.cls, ended.at_ns);
  if (!message.empty()) CountMessage(std::move(message), cell.messages);
  for (auto* outcomes : {&cell.outcomes, &second.outcomes, &recent_[ended.cls].outcomes}) {
    ++(*outcomes)[static_cast<size_t>(outcome)];
  }
  const int64_t lag = std::max<int64_t>(0, ended.sent_ns - ended.at_ns);
  cell.lag.Record(lag);
  second.max_lag_ns = std::max(second.max_lag_ns, lag);
  recent_[ended.cls].max_lag_ns = std::max(recent_[ended.cls].max_lag_ns, lag);
  cell.request_bytes += static_cast<int64_t>(ended.payload->message.size());
  cell.answer_bytes += ended.answer_bytes;
  if (outcome == Outcome::kOk) {
    RecordOk(ended, ended.done_ns - ended.at_ns, cell, second);
  } else if (outcome != Outcome::kCancelled) {
    for (int64_t& above : cell.above_goal) ++above;
    if (outcome == Outcome::kRefused) cell.refusal.Record(ended.done_ns - ended.sent_ns);
  }
  if (log_ != nullptr) {
    log_->Write(workload_.classes[ended.cls].name, ended.endpoint, outcome, ended.at_ns,
                ended.sent_ns, ended.done_ns);
  }
}

void Recorder::RecordDropped(uint16_t cls, int64_t at_ns) {
  const std::lock_guard lock(mu_);
  if (at_ns < 0) return;
  constexpr auto kDropped = static_cast<size_t>(Outcome::kDropped);
  Cell& cell = cells_[cls][0];
  ++cell.outcomes[kDropped];
  for (int64_t& above : cell.above_goal) ++above;
  ++SecondOf(cls, at_ns).outcomes[kDropped];
  ++recent_[cls].outcomes[kDropped];
  if (log_ != nullptr) {
    log_->Write(workload_.classes[cls].name, 0, Outcome::kDropped, at_ns, -1, -1);
  }
}

std::vector<Second> Recorder::TakeRecent() {
  std::vector<Second> fresh(workload_.classes.size());
  const std::lock_guard lock(mu_);
  return std::exchange(recent_, std::move(fresh));
}

void Recorder::MoveTo(RunData& run) {
  const std::lock_guard lock(mu_);
  for (size_t cls = 0; cls < cells_.size(); ++cls) {
    for (size_t endpoint = 0; endpoint < cells_[cls].size(); ++endpoint) {
      run.cells[cls][endpoint].Add(cells_[cls][endpoint]);
    }
  }
  while (run.seconds.size() < seconds_.size()) {
    run.seconds.emplace_back(workload_.classes.size());
  }
  for (size_t second = 0; second < seconds_.size(); ++second) {
    for (size_t cls = 0; cls < cells_.size(); ++cls) {
      run.seconds[second][cls].Add(seconds_[second][cls]);
    }
  }
}

}  // namespace castor::load
