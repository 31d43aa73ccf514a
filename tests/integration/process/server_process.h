// castor-server as a separate process: start it, talk to it, signal it, and wait for it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace castor::testing {

class ServerProcess {
 public:
  // Runs the program with these arguments and captures its standard error; `under` another one,
  // such as {"prlimit", "--nofile=64"}. `program`: empty for this build's own.
  explicit ServerProcess(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& under = {},
                         const std::string& program = "");
  ~ServerProcess();  // kills the process if it still runs
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Reads standard error until a line contains `text` and returns that line; "" when the process
  // ends first or after 60 s.
  std::string AwaitLine(const std::string& text);

  pid_t pid() const { return pid_; }

  // All of standard error so far.
  const std::string& output() const { return output_; }

  void Signal(int number);

  // Waits for the end and reads the rest of standard error. Returns the exit code, 128 + n after
  // signal n ended the process, or -1 after 60 s.
  int Wait();

  // From /proc: the number of open descriptors, and the resident size now and at its peak, in
  // bytes.
  int OpenDescriptors() const;
  int64_t ResidentBytes() const;
  int64_t PeakResidentBytes() const;

 private:
  int64_t StatusBytes(const std::string& name) const;

  // Reads once; false at the end of the stream or at `deadline`.
  bool ReadSome(std::chrono::steady_clock::time_point deadline);
  bool EndsBefore(std::chrono::steady_clock::time_point deadline) const;

  pid_t pid_ = -1;
  int error_pipe_ = -1;
  std::string output_;
  size_t searched_ = 0;  // bytes of output_ that AwaitLine has searched
  bool running_ = true;
};

}  // namespace castor::testing
