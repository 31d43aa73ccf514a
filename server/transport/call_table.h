// Every call that gRPC has handed to us, from its headers to its last byte: how many there may be,
// and how long each may take to send its message and to take its answer.
//
// gRPC's own bound on streams holds for peers that have acknowledged it, its bound on metadata too,
// and its deadlines are the callers'. The bounds here hold whatever a peer acknowledges or asks
// for.
//
// Any thread may call anything. Calls are cancelled on the table's own thread, without its lock.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/request.h"
#include "server/transport/connections.h"

namespace castor::server {

class CallTable {
 public:
  // Health checks have books of their own, so that neither kind of call takes the other's room.
  enum class Kind { kWork, kHealth };

  struct Limits {
    int64_t calls;                       // in all, and an eighth as many health checks beside
    int64_t calls_per_connection;        // of a peer that keeps what it was told
    int64_t metadata_bytes;              // of one call, as HTTP/2 counts them
    std::chrono::milliseconds transfer;  // for a message to arrive, and for an answer to leave
  };

  // One call's row; a member of the call, which must leave before it goes.
  class Row {
   public:
    Row() = default;
    Row(const Row&) = delete;
    Row& operator=(const Row&) = delete;

    // The caller went away, or was sent away, before the call had ended.
    bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

   private:
    friend class CallTable;

    grpc::CallbackServerContext* context_ = nullptr;
    std::shared_ptr<Connection> connection_;   // null on unix sockets
    std::atomic<bool> on_connection_ = false;  // counted there
    Kind kind_ = Kind::kWork;
    std::atomic<bool> cancelled_ = false;
    std::atomic<bool> misbehaved_ = false;
    bool receiving_ = false;             // changed by gRPC's threads in turn
    TimePoint ends_ = TimePoint::max();  // guarded by mu_; max(): no limit runs
  };

  CallTable(Limits limits, const Connections& connections, Metrics& metrics);
  ~CallTable();  // every call has left
  CallTable(const CallTable&) = delete;
  CallTable& operator=(const CallTable&) = delete;

  // Counts a call in and starts the time for its message. An error says that the call must be
  // refused with it; it is in the table all the same.
  absl::Status Enter(Row& row, Kind kind, grpc::CallbackServerContext* context);

  // The message is there, with so many bytes: no limit runs, until Answering.
  void Received(Row& row, int64_t bytes);

  // An answer of so many bytes goes to gRPC, which must have sent it by `deadline`, and within the
  // transfer time.
  void Answering(Row& row, int64_t bytes, TimePoint deadline);

  // gRPC said that the caller cancelled the call, by itself or by the table's doing.
  void Cancelled(Row& row);

  // The last thing that a call does.
  void Leave(Row& row);

 private:
  absl::Status CheckRoom(Row& row);
  void Limit(Row& row, TimePoint ends);
  void LeaveConnection(Row& row);
  void Misbehaved(Row& row, double points);
  void EndOverdue();

  const Limits limits_;
  const Connections& connections_;
  Metrics& metrics_;

  mutable Mutex mu_;
  CondVar changed_;
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t health_checks_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<std::pair<TimePoint, Row*>> limited_ ABSL_GUARDED_BY(mu_);
  Row* being_cancelled_ ABSL_GUARDED_BY(mu_) = nullptr;  // by the thread, which holds no lock
  // Until when the thread sleeps. It may find nothing to do then: that is cheaper than waking it
  // for every call.
  TimePoint sleeps_until_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace castor::server
