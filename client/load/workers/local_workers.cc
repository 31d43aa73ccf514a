#include "client/load/workers/local_workers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "client/file.h"
#include "client/load/workers/token.h"

namespace castor::load {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);   // until a worker listens
constexpr auto kLook = std::chrono::milliseconds(10);  // between looks for its socket
constexpr int kFarewellMs = 3'000;                     // between asking and killing

std::string Reason() { return std::generic_category().message(errno); }

std::string MakeFolder() {
  const char* base = getenv("TMPDIR");
  std::string path = std::string(base == nullptr || *base == '\0' ? "/tmp" : base);
  path += "/castor-load-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {  // for this user alone
    throw std::runtime_error("cannot make a folder '" + path + "': " + Reason());
  }
  return path;
}

// In the child, where only async-signal-safe functions may be called.
[[noreturn]] void BecomeWorker(const char* program, char* const* argv, int null, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it ended before the line above
  setpgid(0, 0);                      // Ctrl-C is the parent's to answer
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  execv(program, argv);
  _exit(127);
}

// Whether the process has ended; it stays to be waited for.
bool HasEnded(pid_t process) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == process;
}

void AwaitEnd(pid_t process, int milliseconds) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (descriptor < 0) return;
  pollfd ended{descriptor, POLLIN, 0};
  (void)poll(&ended, 1, milliseconds);
  close(descriptor);
}

}  // namespace

LocalWorkers::LocalWorkers(int count, const std::string& program,
                           const std::vector<std::string>& arguments)
    : folder_(MakeFolder()) {
  try {
    const std::string token = MakeToken();
    const absl::Status written = client::WriteFile(folder_ + "/token", {token, "\n"});
    if (!written.ok()) throw std::runtime_error(std::string(written.message()));
    for (int i = 0; i < count; ++i) {
      Start(program, i, arguments);
      addresses_.push_back({.target = "unix:" + SocketOf(i), .token = token});
    }
    AwaitListening();
  } catch (...) {
    End();
    throw;
  }
}

LocalWorkers::~LocalWorkers() { End(); }

std::string LocalWorkers::SocketOf(int index) const {
  return folder_ + "/" + std::to_string(index) + ".sock";
}

void LocalWorkers::Start(const std::string& program, int index,
                         const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"castor-load", "worker",
                                        "--listen",    "unix:" + SocketOf(index),
                                        "--token",     folder_ + "/token"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) throw std::runtime_error("cannot open '/dev/null': " + Reason());
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) BecomeWorker(program.c_str(), argv.data(), null, parent);
  close(null);
  if (process < 0) throw std::runtime_error("cannot start a worker process: " + Reason());
  processes_.push_back(process);
}

void LocalWorkers::AwaitListening() const {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (size_t i = 0; i < processes_.size(); ++i) {
    struct stat socket {};
    while (stat(SocketOf(static_cast<int>(i)).c_str(), &socket) != 0) {
      if (HasEnded(processes_[i])) {
        throw std::runtime_error("worker process " + std::to_string(i) +
                                 " ended before it listened: see its messages above");
      }
      if (std::chrono::steady_clock::now() > deadline) {
        throw std::runtime_error("worker process " + std::to_string(i) + " does not listen");
      }
      std::this_thread::sleep_for(kLook);
    }
  }
}

void LocalWorkers::End() {
  for (const pid_t process : processes_) kill(process, SIGTERM);
  for (const pid_t process : processes_) {
    AwaitEnd(process, kFarewellMs);
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  processes_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace castor::load
