#include "server/transport/call_table.h"

#include <algorithm>

#include "engine/base/error.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The price of misconduct, taken from a connection's credit (Connection::kMaxCredit). Any caller
// may reset a stream before its answer now and then. Headers beyond the announced limit are worse:
// each call with them costs the server up to 16 MiB.
constexpr double kResetPoints = 1;
constexpr double kTooManyCallsPoints = 1;
constexpr double kTooMuchMetadataPoints = 50;

// The retry hint. Calls end all the time.
constexpr milliseconds kRetryAfter{100};

// How often overdue calls are looked for while there are limits. Waking the thread for each would
// cost more.
constexpr milliseconds kCheckInterval{50};

}  // namespace

CallTable::CallTable(Limits limits, Connections& connections, Metrics& metrics)
    : limits_(limits),
      connections_(connections),
      metrics_(metrics),
      thread_([this] { EndOverdue(); }) {}

CallTable::~CallTable() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

absl::Status CallTable::Enter(Row& row, Kind kind, Call& call, EndCall end) {
  row.call_ = &call;
  row.kind_ = kind;
  row.end_ = std::move(end);
  row.connection_ = connections_.ForCall(call.peer());
  // Refused calls too: their callers have to read the refusal.
  Limit(row, TransferEnd());
  row.table_ = this;  // what throws from here on leaves a row that can leave

  const absl::Status room = CheckRoom(row);
  if (call.header_bytes() > limits_.metadata_bytes) {
    Misbehaved(row, kTooMuchMetadataPoints);
    return MakeError(Reason::kTooLarge, "the call's metadata takes more than " +
                                            std::to_string(limits_.metadata_bytes) + " bytes");
  }
  return room;
}

// Counts the call everywhere, and reports where there are too many.
absl::Status CallTable::CheckRoom(Row& row) {
  const bool health = row.kind_ == Kind::kHealth;
  const int64_t limit = health ? std::max<int64_t>(limits_.calls / 8, 1) : limits_.calls;
  int64_t all;
  {
    MutexLock lock(mu_);
    all = ++(health ? health_checks_ : calls_);
  }
  if (row.connection_ != nullptr) {
    Host& host = row.connection_->host();
    const int64_t of_host = 1 + (health ? host.health_checks : host.calls).fetch_add(1);
    // Twice the limit: the end of a stream and the beginning of the next one reach us on two
    // threads.
    row.on_connection_ = row.connection_->EnterCall(2 * limits_.calls_per_connection);
    if (!row.on_connection_) {
      Misbehaved(row, kTooManyCallsPoints);
      return QueueFull("too many calls on this connection", kRetryAfter);
    }
    if (of_host > std::max<int64_t>(limit * 3 / 4, 1)) {
      return QueueFull("too many calls from this host", kRetryAfter);
    }
  }
  if (all > limit) return QueueFull("too many calls on this server", kRetryAfter);
  return absl::OkStatus();
}

void CallTable::EndUnreceived(absl::Status why) {
  {
    MutexLock lock(mu_);
    stopping_ = std::move(why);
  }
  changed_.NotifyAll();
}

void CallTable::Received(Row& row) noexcept { Limit(row, TimePoint::max()); }

void CallTable::Answering(Row& row, TimePoint deadline) {
  Limit(row, std::min(deadline, TransferEnd()));
}

void CallTable::Answered(Row& row) {
  if (row.connection_ != nullptr) row.connection_->Answered(steady_clock::now());
}

void CallTable::Cancelled(Row& row) {
  row.cancelled_.store(true, std::memory_order_release);
  LeaveConnection(row);
  // A caller whose deadline passes also resets the stream; that is no misconduct.
  constexpr std::chrono::hours kAny{1};
  if (row.call_->deadline(kAny) > steady_clock::now()) Misbehaved(row, kResetPoints);
}

void CallTable::Leave(Row& row) {
  row.table_ = nullptr;
  LeaveConnection(row);
  if (!row.cancelled() && !row.misbehaved_) Answered(row);
  const bool health = row.kind_ == Kind::kHealth;
  if (row.connection_ != nullptr) {
    Host& host = row.connection_->host();
    (health ? host.health_checks : host.calls).fetch_sub(1);
  }
  MutexLock lock(mu_);
  --(health ? health_checks_ : calls_);
  SetLimit(row, TimePoint::max());
  if (std::this_thread::get_id() == thread_.get_id()) {
    // gRPC may run this inside the Cancel that the table's thread called.
    if (being_cancelled_ == &row) being_cancelled_ = nullptr;
  } else {
    while (being_cancelled_ == &row) changed_.Wait(mu_);
  }
}

void CallTable::Limit(Row& row, TimePoint ends) {
  MutexLock lock(mu_);
  SetLimit(row, ends);
}

void CallTable::SetLimit(Row& row, TimePoint ends) {
  if (row.ends_ != TimePoint::max()) row.place_ = limited_.extract({row.ends_, &row});
  row.ends_ = ends;
  if (ends == TimePoint::max()) return;
  if (std::exchange(asleep_, false)) changed_.NotifyAll();
  if (row.place_.empty()) {
    limited_.emplace(ends, &row);
  } else {
    row.place_.value() = {ends, &row};
    limited_.insert(std::move(row.place_));
  }
}

void CallTable::LeaveConnection(Row& row) {
  if (row.on_connection_.exchange(false)) row.connection_->LeaveCall();
}

void CallTable::Misbehaved(Row& row, double points) {
  row.misbehaved_ = true;
  if (row.connection_ == nullptr) return;
  if (!row.connection_->Misbehaved(points, steady_clock::now())) return;
  metrics_.ConnectionExpelled();  // before its peer can see it
  row.connection_->Reset();
}

CallTable::Row* CallTable::Unreceived() const {
  if (stopping_.ok()) return nullptr;
  for (const auto& [ends, row] : limited_) {
    if (row->end_ != nullptr) return row;
  }
  return nullptr;
}

// Ends the calls whose time is up, until the table is destroyed. While the server stops, it also
// ends calls whose messages have not arrived.
void CallTable::EndOverdue() {
  const absl::Status too_late =
      MakeError(Reason::kCancelled, "no message came within the server's --transfer-timeout");
  MutexLock lock(mu_);
  while (!stopped_) {
    const bool overdue = !limited_.empty() && limited_.begin()->first <= steady_clock::now();
    Row* const row = overdue ? limited_.begin()->second : Unreceived();
    if (row == nullptr) {
      asleep_ = limited_.empty();
      const TimePoint next = steady_clock::now() + kCheckInterval;
      changed_.WaitUntil(mu_, asleep_ ? TimePoint::max() : next);
      continue;
    }
    if (overdue) SetLimit(*row, TimePoint::max());
    const EndCall end = std::exchange(row->end_, nullptr);
    const absl::Status why = overdue ? too_late : stopping_;
    being_cancelled_ = row;
    Call* const call = row->call_;
    mu_.Unlock();
    if (overdue) metrics_.CallOverdue();
    const bool ended = end != nullptr && end(why);
    if (overdue && !ended) call->Cancel();
    mu_.Lock();
    being_cancelled_ = nullptr;  // the row may have been removed
    changed_.NotifyAll();
  }
}

}  // namespace castor::server
