// Every call that gRPC has handed to us, from its headers to its last byte. Bounds how many there
// are, how long each may take to send its message, and how long to read its answer.
//
// gRPC's own bounds on streams and metadata hold only for peers that have acknowledged them, and
// its deadlines are chosen by the callers. The bounds here always hold.
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
  // Health checks are counted separately, so that neither kind of call takes the other's room.
  enum class Kind { kWork, kHealth };

  struct Limits {
    int64_t calls;                       // in all; plus an eighth as many health checks
    int64_t calls_per_connection;        // of a peer that keeps to its limits
    int64_t metadata_bytes;              // of one call, as HTTP/2 counts them
    std::chrono::milliseconds transfer;  // for a message to arrive, and for an answer to leave
  };

  // One call's row; a member of the call, which must leave the table before it is destroyed.
  class Row {
   public:
    Row() = default;
    Row(const Row&) = delete;
    Row& operator=(const Row&) = delete;

    // The caller went away, or was disconnected, before the call had ended.
    bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

   private:
    friend class CallTable;

    grpc::CallbackServerContext* context_ = nullptr;
    std::shared_ptr<Connection> connection_;   // null on unix sockets
    std::atomic<bool> on_connection_ = false;  // counted in the connection
    Kind kind_ = Kind::kWork;
    std::atomic<bool> cancelled_ = false;
    std::atomic<bool> misbehaved_ = false;
    TimePoint ends_ = TimePoint::max();  // guarded by mu_; max(): no limit
  };

  CallTable(Limits limits, Connections& connections, Metrics& metrics);
  ~CallTable();  // every call has left the table
  CallTable(const CallTable&) = delete;
  CallTable& operator=(const CallTable&) = delete;

  // Counts a call in and starts the time for its message. An error says that the call must be
  // refused with it; it is in the table all the same.
  absl::Status Enter(Row& row, Kind kind, grpc::CallbackServerContext* context);

  // The message has arrived. There is no limit until Answering.
  void Received(Row& row);

  // Of a stream that reads and writes at the same time, which says itself what its time is: an
  // answer has been sent; when to end the stream, and when the transfer time ends that begins now.
  void Answered(Row& row);
  void Limit(Row& row, TimePoint ends);
  TimePoint TransferEnd() const { return std::chrono::steady_clock::now() + limits_.transfer; }

  // An answer goes to gRPC, which must have sent it by `deadline` and within the transfer time.
  void Answering(Row& row, TimePoint deadline);

  // gRPC reports that the call was cancelled, by its caller or by this table.
  void Cancelled(Row& row);

  // The last thing that a call does.
  void Leave(Row& row);

 private:
  absl::Status CheckRoom(Row& row);
  void LeaveConnection(Row& row);
  void Misbehaved(Row& row, double points);
  void EndOverdue();

  const Limits limits_;
  Connections& connections_;
  Metrics& metrics_;

  mutable Mutex mu_;
  CondVar changed_;
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t health_checks_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<std::pair<TimePoint, Row*>> limited_ ABSL_GUARDED_BY(mu_);
  Row* being_cancelled_ ABSL_GUARDED_BY(mu_) = nullptr;  // by the thread, which holds no lock
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace castor::server
