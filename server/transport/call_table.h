// Every call that has reached us, from its headers to its last byte. Bounds how many there
// are, how long each may take to send its message, and how long to read its answer.
//
// gRPC's own bounds on streams and metadata hold only for peers that have acknowledged them, and
// its deadlines are chosen by the callers. The bounds here always hold.
//
// Any thread may call anything. Calls are cancelled on the table's own thread, without its lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/request.h"
#include "server/transport/call.h"
#include "server/transport/connections.h"

namespace castor::server {

class CallTable {
 public:
  class Row;
  using Limited = std::set<std::pair<TimePoint, Row*>>;

  // Ends a call with a status that says why. False if that is not possible, because an answer is
  // being written or computed. Called at most once, on the table's thread.
  using EndCall = std::function<bool(const absl::Status& why)>;

  // Health checks are counted separately, so that neither kind of call takes the other's room.
  enum class Kind { kWork, kHealth };

  struct Limits {
    int64_t calls;                       // in all; plus an eighth as many health checks
    int64_t calls_per_connection;        // of a peer that keeps to its limits
    int64_t metadata_bytes;              // of one call, as HTTP/2 counts them
    std::chrono::milliseconds transfer;  // for a message to arrive, and for an answer to leave
  };

  // One call's row; a member of the call. A call that has begun must leave the table before it is
  // destroyed; one that has not leaves with its row.
  class Row {
   public:
    Row() = default;
    ~Row() {
      if (table_ != nullptr) table_->Leave(*this);
    }
    Row(const Row&) = delete;
    Row& operator=(const Row&) = delete;

    // Whether the caller left, or was disconnected, before the call had ended.
    bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

   private:
    friend class CallTable;

    CallTable* table_ = nullptr;  // null: it is not in one
    Call* call_ = nullptr;
    std::shared_ptr<Connection> connection_;   // null on unix sockets
    std::atomic<bool> on_connection_ = false;  // counted in the connection
    Kind kind_ = Kind::kWork;
    std::atomic<bool> cancelled_ = false;
    std::atomic<bool> misbehaved_ = false;
    // Guarded by mu_.
    EndCall end_;
    TimePoint ends_ = TimePoint::max();  // max(): no limit
    Limited::node_type place_;           // for a limit, while there is none: to set one cannot fail
  };

  CallTable(Limits limits, Connections& connections, Metrics& metrics);
  ~CallTable();  // every call has left the table
  CallTable(const CallTable&) = delete;
  CallTable& operator=(const CallTable&) = delete;

  // Counts a call in and starts the time for its message. An error says that the call must be
  // refused with it; it is in the table all the same. A call that runs out of time is ended by
  // `end`; without one, or where that could not, it is cancelled.
  absl::Status Enter(Row& row, Kind kind, Call& call, EndCall end = nullptr);

  // The server stops: calls `end` of each call with `why`, those that come later too.
  void EndUnreceived(absl::Status why);

  // The message has arrived. There is no limit until Answering.
  void Received(Row& row) noexcept;

  // For streams, which read and write at the same time and set their own limits. Answered: an
  // answer has been sent. Limit: when to end the stream. TransferEnd: the end of a transfer time
  // that begins now.
  void Answered(Row& row);
  void Limit(Row& row, TimePoint ends);  // does not throw once the row has entered
  TimePoint TransferEnd() const { return std::chrono::steady_clock::now() + limits_.transfer; }

  // An answer goes to gRPC, which must have sent it by `deadline` and within the transfer time.
  void Answering(Row& row, TimePoint deadline);

  // The transport reports that the call was cancelled, by its caller or by this table.
  void Cancelled(Row& row);

  // The last thing that a call does.
  void Leave(Row& row);

 private:
  absl::Status CheckRoom(Row& row);
  void LeaveConnection(Row& row);
  void SetLimit(Row& row, TimePoint ends) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Row* Unreceived() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Misbehaved(Row& row, double points);
  void EndOverdue();

  const Limits limits_;
  Connections& connections_;
  Metrics& metrics_;

  mutable Mutex mu_;
  CondVar changed_;
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t health_checks_ ABSL_GUARDED_BY(mu_) = 0;
  Limited limited_ ABSL_GUARDED_BY(mu_);
  absl::Status stopping_ ABSL_GUARDED_BY(mu_);           // why calls without a message end
  Row* being_cancelled_ ABSL_GUARDED_BY(mu_) = nullptr;  // by the thread, which holds no lock
  bool asleep_ ABSL_GUARDED_BY(mu_) = false;             // the thread, until there is a limit
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace castor::server
