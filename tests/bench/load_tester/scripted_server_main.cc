// castor-scripted-server: a server for measuring load testers, see scripted_server.h.
//
//   castor-scripted-server --service-time 20ms --stall 1s --stall-every 10s
//   castor-scripted-server --queue --service-time 1ms
//   castor-scripted-server --discard
//
// Prints a line of JSON when it listens: its address, begin_unix_ns, the script. SIGINT or SIGTERM
// ends it.

#include <sched.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "client/cli/values.h"
#include "tests/bench/load_tester/scripted_server.h"

namespace castor::bench {
namespace {

void Serve(const ScriptOptions& script) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  // What runs beside this, such as the client that is measured, must not move its answers, where
  // that is permitted.
  sched_param first{};
  first.sched_priority = 1;
  if (!script.discard) (void)sched_setscheduler(0, SCHED_FIFO, &first);
  const ScriptedServer server(script);
  const nlohmann::ordered_json line = {{"listening", server.address()},
                                       {"begin_unix_ns", server.begin_unix_ns()},
                                       {"service_ns", script.service_ns},
                                       {"stall_ns", script.stall_ns},
                                       {"stall_every_ns", script.stall_every_ns}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) {
  castor::bench::ScriptOptions script;
  CLI::App app("A gRPC server whose answers leave at times known in advance.",
               "castor-scripted-server");
  double service = 0, stall = 0, stall_every = 0;
  const auto seconds = [] { return castor::cli::Seconds(0, 3600); };
  app.add_option("--service-time", service, "From a request to its answer, such as 20ms")
      ->transform(seconds());
  app.add_flag("--queue", script.queue, "One at a time, first come, first served");
  auto* const stall_option =
      app.add_option("--stall", stall, "Nothing leaves for so long ...")->transform(seconds());
  auto* const every_option =
      app.add_option("--stall-every", stall_every, "... once in this time, first after it")
          ->transform(seconds());
  stall_option->needs(every_option);
  every_option->needs(stall_option);
  app.add_flag("--discard", script.discard, "Answer all at once, with the least work");
  CLI11_PARSE(app, argc, argv);
  script.service_ns = static_cast<int64_t>(service * 1e9);
  script.stall_ns = static_cast<int64_t>(stall * 1e9);
  script.stall_every_ns = static_cast<int64_t>(stall_every * 1e9);
  if (script.stall_ns > 0 && script.stall_ns >= script.stall_every_ns) {
    std::fprintf(stderr, "castor-scripted-server: --stall must be shorter than --stall-every\n");
    return 2;
  }
  try {
    castor::bench::Serve(script);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "castor-scripted-server: %s\n", error.what());
    return 1;
  }
  return 0;
}
