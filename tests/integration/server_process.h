// castor-server as a process of its own: started, talked to, signalled, and waited for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace castor::testing {

class ServerProcess {
 public:
  // Runs the program with these arguments; its standard error comes here. With `limits`, arguments
  // of prlimit(1), such as "--nofile=64", it runs under these.
  explicit ServerProcess(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& limits = {});
  ~ServerProcess();  // kills what still runs
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Reads standard error until a line holds `text` and returns that line; "" when the process ends
  // or 60 s pass first.
  std::string AwaitLine(const std::string& text);

  // All of standard error so far.
  const std::string& output() const { return output_; }

  void Signal(int number);

  // Waits for the end and reads what was still to read. The exit code; 128 + n after a signal that
  // was not handled; -1 when 60 s were not enough.
  int Wait();

  // From /proc: the number of open descriptors, and the greatest resident size so far in bytes.
  int OpenDescriptors() const;
  int64_t PeakResidentBytes() const;

 private:
  // Reads once; false at the end of the stream or at `deadline`.
  bool ReadSome(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  int error_pipe_ = -1;
  std::string output_;
  size_t searched_ = 0;  // bytes of output_ that AwaitLine has passed
  bool running_ = true;
};

}  // namespace castor::testing
