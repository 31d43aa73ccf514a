// The service by which a coordinator drives this process: proto/castor/worker/v1/worker.proto.
#pragma once

#include <memory>
#include <string>

#include "client/load/workers/job.h"

namespace castor::load {

struct WorkerOptions {
  std::string listen = "127.0.0.1:0";  // HOST:PORT, or unix:PATH; port 0: any
  std::string token;                   // that callers must bring; empty: none
  std::string version;
};

// Whether only processes on this machine can connect to such an address.
bool OnThisMachineOnly(const std::string& listen);

// Listens from construction on. Runs one job at a time, on threads of its own. The functions may be
// called from any thread.
class WorkerServer {
 public:
  // Throws std::runtime_error when it cannot listen, and std::invalid_argument when other machines
  // could connect and there is no token.
  WorkerServer(WorkerOptions options, PrepareJob prepare);
  ~WorkerServer();  // as Shutdown()
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;

  const std::string& address() const;  // with the port that was bound

  // Breaks the coordinator's stream, stops the job, and waits for its end.
  void Shutdown();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace castor::load
