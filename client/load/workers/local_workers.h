// Workers on this machine: processes of `castor-load worker` on sockets in a folder that nobody
// else can enter, with a token of their own. They end with this object, and the kernel ends them
// when the thread that made it ends in whatever way.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "client/load/workers/coordinator.h"

namespace castor::load {

// For one thread, which must be one that lives as long as the object: best, main's.
class LocalWorkers {
 public:
  // Starts `count` processes of `program`, by default this one, with more `arguments`, which are
  // there for all to read, and this process's environment. Waits until they listen. Throws
  // std::runtime_error when one does not.
  explicit LocalWorkers(int count, const std::string& program = "/proc/self/exe",
                        const std::vector<std::string>& arguments = {});
  ~LocalWorkers();
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;

  const std::vector<WorkerAddress>& addresses() const { return addresses_; }
  const std::vector<pid_t>& processes() const { return processes_; }

 private:
  std::string SocketOf(int index) const;
  void Start(const std::string& program, int index, const std::vector<std::string>& more);
  void AwaitListening() const;
  void End();

  std::string folder_;
  std::vector<WorkerAddress> addresses_;
  std::vector<pid_t> processes_;
};

}  // namespace castor::load
