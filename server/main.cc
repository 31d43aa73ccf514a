// castor-server: parts -> run -> drain. castor-server token: auth/token.h.
//
// Exit codes: 0 drained cleanly; 1 could not start; 2 bad options; 3 the device failed; 4 the
// drain's deadline passed with calls unanswered or answers not taken; 128 + n ended at once by
// signal n; 134 (SIGABRT) could not go on; one line says why.

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/synchronization/mutex.h"
#include "server/auth/token.h"
#include "server/errors.h"
#include "server/lifecycle/environment.h"
#include "server/lifecycle/heap_trimmer.h"
#include "server/lifecycle/signals.h"
#include "server/logging.h"
#include "server/options/options.h"
#include "server/server.h"

namespace castor::server {
namespace {

constexpr size_t kMaxStartError = 4096;  // of the one line that says why

// Runs before main and even before the libraries initialise themselves, which takes a quarter of a
// second; where a sanitizer is among them, its functions cannot be called yet. Blocks the signals
// that SignalWatcher takes. What is blocked, and has come, lasts through the exec in
// SetEnvironment.
__attribute__((no_sanitize("address", "thread", "undefined"))) void BeforeLibraries(
    int /*argc*/, char** argv, char** environment) {
  static constexpr uint64_t kSignals = kWatchedSignals;  // has an address
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &kSignals, nullptr, sizeof(kSignals));
  SetEnvironment(argv, environment);
}
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_libraries)(int, char**, char**) = &BeforeLibraries;

int ExitCode(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDrained:
      return 0;
    case Outcome::kEngineFault:
      return 3;
    case Outcome::kDrainTimedOut:
      return 4;
  }
  return 1;
}

int CannotStart(const absl::Status& error) {
  FlushLogging();
  std::fprintf(stderr, "castor-server: cannot start: %s\n",
               Printable(std::string(error.message()), kMaxStartError).c_str());
  return 1;
}

int Run(ServerOptions options, StartGuard& starting) {
  const int64_t kept_bytes = options.max_kept_bytes;
  KeepFreedMemory(kept_bytes);
  SignalWatcher signals;  // before any thread: those started later inherit the blocked signals
  InitLogging(options.log_format, options.log_level);
  SendLibraryLogs();
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(std::move(options));
  if (!server.ok()) return CannotStart(server.status());
  // Do this before the first caller can see that the server serves.
  signals.OnFirst([&] { (*server)->RequestStop(); });
  if (const absl::Status listening = (*server)->Listen(); !listening.ok()) {
    signals.OnFirst(nullptr);
    return CannotStart(listening);
  }
  const HeapTrimmer trimmer((*server)->periodic(), kept_bytes);
  starting.Done();
  const Outcome outcome = (*server)->Wait();
  // All that leaves the process has left it. A destructor could only lose time: gRPC's shutdown
  // waits up to 10 s for a thread that polls for writes which are done; a broken device can hang or
  // crash whatever touches it; and the engine would wait for one that has not answered.
  FlushLogging();
  std::_Exit(ExitCode(outcome));
}

}  // namespace
}  // namespace castor::server

int main(int argc, char** argv) {
  castor::server::SayWhyOnTerminate();
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "token") {
    castor::server::UnblockSignals();
    return castor::server::RunTokenCommand(argc - 1, argv + 1);
  }
  // Distributions build Abseil with the search for cycles of locks, which takes a lock of the whole
  // process for each lock of gRPC's.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  castor::server::StartGuard starting;
  auto parsed = castor::server::ParseOptions(argc, argv);
  if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
  return castor::server::Run(std::get<castor::server::ServerOptions>(std::move(parsed)), starting);
}
