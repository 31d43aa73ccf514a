#include "tests/integration/process/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/sanitizer.h"

extern char** environ;

namespace castor::testing {
namespace {

constexpr std::chrono::milliseconds kPatience = Patience(std::chrono::seconds(60));

// For poll(); 0 when `deadline` has passed.
int MillisecondsUntil(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

}  // namespace

ServerProcess::ServerProcess(const std::vector<std::string>& arguments,
                             const std::vector<std::string>& under, const std::string& program) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  std::vector<char*> argv;
  for (const std::string& word : under) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(const_cast<char*>(program.empty() ? CASTOR_SERVER_PROGRAM : program.c_str()));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  if (posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) {
    running_ = false;
  }
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  error_pipe_ = ends[0];
}

ServerProcess::~ServerProcess() {
  if (running_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(error_pipe_);
}

bool ServerProcess::ReadSome(std::chrono::steady_clock::time_point deadline) {
  pollfd readable{error_pipe_, POLLIN, 0};
  if (poll(&readable, 1, MillisecondsUntil(deadline)) <= 0) return false;
  char buffer[4096];
  const ssize_t got = read(error_pipe_, buffer, sizeof(buffer));
  if (got <= 0) return false;
  output_.append(buffer, static_cast<size_t>(got));
  return true;
}

std::string ServerProcess::AwaitLine(const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    for (size_t end; (end = output_.find('\n', searched_)) != std::string::npos;) {
      const std::string line = output_.substr(searched_, end - searched_);
      searched_ = end + 1;
      if (line.find(text) != std::string::npos) return line;
    }
    if (!ReadSome(deadline)) return "";
  }
}

void ServerProcess::Signal(int number) { kill(pid_, number); }

bool ServerProcess::EndsBefore(std::chrono::steady_clock::time_point deadline) const {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (process < 0) return false;
  pollfd ended{process, POLLIN, 0};
  const int count = poll(&ended, 1, MillisecondsUntil(deadline));
  close(process);
  return count > 0;
}

int ServerProcess::Wait() {
  if (!running_) return -1;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (ReadSome(deadline)) {
  }
  // The stream has ended, so the process has ended or should be about to.
  if (!EndsBefore(deadline)) return -1;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return -1;
  running_ = false;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int ServerProcess::OpenDescriptors() const {
  int count = 0;
  const std::string folder = "/proc/" + std::to_string(pid_) + "/fd";
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

int64_t ServerProcess::ResidentBytes() const { return StatusBytes("VmRSS:"); }

int64_t ServerProcess::PeakResidentBytes() const { return StatusBytes("VmHWM:"); }

int64_t ServerProcess::StatusBytes(const std::string& name) const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  for (std::string word; status >> word;) {
    if (word != name) continue;
    int64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes << 10;
  }
  return -1;
}

}  // namespace castor::testing
