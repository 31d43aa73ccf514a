// One worker as its coordinator sees it: the connection, the clock, and the stream of one job.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "castor/worker/v1/worker.grpc.pb.h"
#include "client/load/workers/coordinator.h"
#include "client/load/workers/wire.h"

namespace castor::load {

// What all workers' threads tell the coordinator's.
struct Board {
  std::mutex mu;
  std::condition_variable changed;
};

// What is known of a worker. Guarded by the board's mutex.
struct WorkerState {
  bool prepared = false;
  bool ended = false;  // its stream has
  std::string failure;
  std::string json;       // its result ...
  bool complete = false;  // ... is whole
  std::optional<Progress> progress;
  bool fresh = false;  // the progress has not been shown
  std::chrono::steady_clock::time_point heard{};
};

class RemoteWorker {
 public:
  // Neither connects nor fails.
  RemoteWorker(WorkerAddress address, Board* board);
  ~RemoteWorker();  // cancels the job if it still runs
  RemoteWorker(const RemoteWorker&) = delete;
  RemoteWorker& operator=(const RemoteWorker&) = delete;

  // Connects and reads its clock. Throws std::runtime_error.
  void Connect(const CoordinatorOptions& options);

  // Opens the stream, and reads it on a thread of its own from then on.
  void Prepare(const Job& job, const std::string& version);
  void Start(std::chrono::system_clock::time_point begin);  // by this host's clock
  void Stop();
  void Cancel() { context_.TryCancel(); }

  const std::string& target() const { return address_.target; }
  std::chrono::nanoseconds clock_ahead() const { return clock_ahead_; }
  std::chrono::nanoseconds clock_error() const { return clock_error_; }

  WorkerState state;

 private:
  void ReadClock(std::chrono::system_clock::time_point deadline);
  void Read();
  void Take(wire::RunResponse& response);  // under the board's lock
  void Write(const wire::RunRequest& request);
  void EndWriting();

  const WorkerAddress address_;
  Board* const board_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<wire::LoadWorker::Stub> stub_;
  std::chrono::nanoseconds clock_ahead_{0};
  std::chrono::nanoseconds clock_error_{0};

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<wire::RunRequest, wire::RunResponse>> stream_;
  std::mutex writing_;
  bool may_write_ = false;  // guarded by writing_
  std::thread reader_;
};

}  // namespace castor::load
