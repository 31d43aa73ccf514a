#include "tests/bench/load/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tests/bench/command_line.h"
#include "tests/bench/load/caller.h"

namespace castor::bench {
namespace {

constexpr size_t kTimeLength = 27;  // of "2026-01-31T23:59:59.123456Z", with which its lines begin

// The word after `key`, such as "grpc=".
std::string ValueOf(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return "";
  line.remove_prefix(at + key.size());
  return std::string(line.substr(0, line.find_first_of(" \n")));
}

std::string FirstWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// In the child, where only async-signal-safe functions may be called.
[[noreturn]] void BecomeServer(char* const* argv, int log, int cpu, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpriority(PRIO_PROCESS, 0, 0);  // this program's own may be another
  if (getppid() != parent) _exit(1);
  if (cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) _exit(1);
  }
  dup2(log, STDERR_FILENO);
  dup2(log, STDOUT_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

ServerProcess::ServerProcess(const std::string& program, const std::vector<std::string>& flags,
                             int cpu) {
  std::vector<std::string> arguments = {
      program, "--listen",         "127.0.0.1:0", "--device",
      "cpu",   "--metrics-listen", "127.0.0.1:0", "--cost-model-budget",
      "0s"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Die("no pipe for the server's log");
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) Die("cannot start a process");
  if (pid_ == 0) BecomeServer(argv.data(), ends[1], cpu, parent);
  running_ = true;
  close(ends[1]);

  const auto deadline = Clock::now() + std::chrono::seconds(60);
  std::string log;
  while (address_.empty()) {
    pollfd readable{ends[0], POLLIN, 0};
    char buffer[4096];
    const bool in_time = Clock::now() < deadline;
    if (in_time && poll(&readable, 1, 1000) == 0) continue;
    const ssize_t got = in_time ? read(ends[0], buffer, sizeof(buffer)) : 0;
    if (got <= 0) Die(log + "\n" + program + " did not start");
    log.append(buffer, static_cast<size_t>(got));
    const size_t line = log.find(" listening ");
    if (line == std::string::npos || log.find('\n', line) == std::string::npos) continue;
    address_ = ValueOf(std::string_view(log).substr(line), "grpc=");
    const std::string metrics = ValueOf(std::string_view(log).substr(line), "metrics=");
    metrics_port_ = std::atoi(metrics.c_str() + metrics.rfind(':') + 1);
  }
  log_reader_ = std::thread([this, pipe = ends[0]] { ReadLog(pipe); });
}

ServerProcess::~ServerProcess() {
  if (running_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  log_reader_.join();
}

// What the server complains about belongs beside the figures, as does what is not of its log, such
// as a sanitizer's report.
void ServerProcess::ReadLog(int pipe) {
  char buffer[4096];
  std::string rest;
  for (ssize_t got; (got = read(pipe, buffer, sizeof(buffer))) > 0;) {
    rest.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) {
      const std::string line = rest.substr(0, end);
      const bool logged = line.size() > kTimeLength && line[kTimeLength - 1] == 'Z';
      if (logged && line.find(" error ") == std::string::npos) continue;
      std::fprintf(stderr, "%s\n", line.c_str());
    }
  }
  close(pipe);
}

std::chrono::nanoseconds ServerProcess::CpuTime() const {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

CpuTimes ServerProcess::CpuTimesByThread() const {
  const std::string folder = "/proc/" + std::to_string(pid_);
  const std::string program = FirstWord(folder + "/comm");
  CpuTimes times = {.all = CpuTime()};
  std::error_code gone;  // a thread that ends meanwhile
  for (const auto& task : std::filesystem::directory_iterator(folder + "/task", gone)) {
    if (FirstWord(task.path() / "comm") != program) continue;
    times.own[std::atoi(task.path().filename().c_str())] =
        std::chrono::nanoseconds(std::atoll(FirstWord(task.path() / "schedstat").c_str()));
  }
  return times;
}

int64_t ServerProcess::ResidentBytes() const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  for (std::string word; status >> word;) {
    if (word != "VmRSS:") continue;
    int64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes << 10;
  }
  return 0;
}

void ServerProcess::Terminate() {
  if (running_) kill(pid_, SIGTERM);
}

std::optional<int> ServerProcess::Wait(std::chrono::seconds patience) {
  const auto deadline = Clock::now() + patience;
  while (running_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      running_ = false;
      if (WIFEXITED(status)) return WEXITSTATUS(status);
      return std::nullopt;
    }
    if (Clock::now() > deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::nullopt;
}

}  // namespace castor::bench
