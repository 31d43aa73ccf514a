// One job of a worker, from its stream's first message to its last.
#pragma once

#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "castor/worker/v1/worker.pb.h"
#include "client/load/workers/wire.h"

namespace castor::load {

// Two threads: the caller's reads what the coordinator sends, a second one prepares and runs.
class RunningJob {
 public:
  using Stream = grpc::ServerReaderWriter<wire::RunResponse, wire::RunRequest>;

  RunningJob(const PrepareJob& prepare, const Job& job, const std::string& version, Stream* stream)
      : prepare_(prepare), job_(job), version_(version), stream_(stream) {}

  // Returns when the coordinator has ended its side of the stream, or the stream has broken; the
  // job has then ended too.
  void Run();

 private:
  void PrepareAndRun();
  // nullopt when the job is stopped before.
  std::optional<std::chrono::steady_clock::time_point> AwaitStart();
  void RequestStop();
  void Take(const wire::Start& start);
  // False when the stream is broken; the job is then told to stop.
  bool Send(const wire::RunResponse& response);
  void Fail(const std::string& message);
  void SendResult(const RunData& data);

  const PrepareJob& prepare_;
  const Job& job_;
  const std::string& version_;
  Stream* const stream_;
  std::atomic<bool> stop_ = false;  // set under mu_, so that nobody who waits misses it

  std::mutex writing_;  // one message at a time
  std::mutex mu_;
  std::condition_variable started_;
  std::optional<std::chrono::steady_clock::time_point> begin_;  // guarded by mu_
};

}  // namespace castor::load
