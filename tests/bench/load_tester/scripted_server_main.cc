// castor-scripted-server: a server for measuring load testers, see scripted_server.h.
//
//   castor-scripted-server --service-time 20ms --stall 1s --stall-every 10s
//   castor-scripted-server --queue md1 --service-time 1ms
//   castor-scripted-server --discard
//
// Prints a line of JSON when it listens (port, begin_unix_ns, the script), and one with its counts
// when SIGINT or SIGTERM ends it.

#include <sched.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/bench/load_tester/scripted_server.h"

namespace castor::bench {
namespace {

ScriptedServer* running = nullptr;

void Print(const nlohmann::ordered_json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

// What runs beside this, such as the client that is measured, must not move its answers. Where that
// is not permitted, the last line tells how late they were.
void GoBeforeOthers() {
  sched_param first{};
  first.sched_priority = 1;
  (void)sched_setscheduler(0, SCHED_FIFO, &first);
}

void Serve(const ScriptedServerOptions& options) {
  if (!options.discard) GoBeforeOthers();
  ScriptedServer server(options);
  running = &server;
  struct sigaction action {};
  action.sa_handler = [](int) { running->Stop(); };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const ScriptOptions& script = options.script;
  Print({{"listening", options.address + ":" + std::to_string(server.port())},
         {"begin_unix_ns", server.begin_unix_ns()},
         {"queue", script.service == ScriptOptions::Service::kQueue ? "md1" : "parallel"},
         {"service_ns", script.service_ns},
         {"stall_ns", script.stall_ns},
         {"stall_every_ns", script.stall_every_ns}});
  server.Run();
  const ScriptedServerCounts counts = server.Counts();
  Print({{"came", counts.came},
         {"good", counts.good},
         {"wrong", counts.wrong},
         {"refused", counts.refused},
         {"silent", counts.silent},
         {"late_p50_ns", counts.late_p50},
         {"late_p99_ns", counts.late_p99},
         {"late_max_ns", counts.late_max}});
}

}  // namespace
}  // namespace castor::bench

int main(int argc, char** argv) {
  using castor::bench::ScriptOptions;
  castor::bench::ScriptedServerOptions options;
  ScriptOptions& script = options.script;
  CLI::App app("A gRPC server whose answers leave at times known in advance.",
               "castor-scripted-server");
  // Times as numbers with a unit: 20ms, 0.5s.
  const CLI::AsNumberWithUnit time(
      std::map<std::string, double>{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}},
      CLI::AsNumberWithUnit::UNIT_REQUIRED, "TIME");
  double service = 0, stall = 0, stall_every = 0;
  app.add_option("--address", options.address, "IPv4 address to listen on")->capture_default_str();
  app.add_option("--port", options.port, "0: any free one")->capture_default_str();
  app.add_option("--begin-at", options.begin_unix_ns,
                 "What the script counts from, in Unix nanoseconds (default: the start)");
  app.add_option("--service-time", service, "From a request to its answer, such as 20ms")
      ->transform(time);
  app.add_option("--queue", script.service,
                 "parallel: requests do not wait for each other; md1: one at a time, first come, "
                 "first served")
      ->transform(CLI::Transformer(std::map<std::string, ScriptOptions::Service>{
          {"parallel", ScriptOptions::Service::kParallel},
          {"md1", ScriptOptions::Service::kQueue}}));
  auto* const stall_option =
      app.add_option("--stall", stall, "Nothing leaves for so long ...")->transform(time);
  auto* const every_option =
      app.add_option("--stall-every", stall_every, "... once in this time, first after it")
          ->transform(time);
  stall_option->needs(every_option);
  every_option->needs(stall_option);
  app.add_flag("--discard", options.discard, "Answer all at once, with the least work");
  app.add_flag("--one-token", options.one_token,
               "Answer attention over a single token with its value, as a real server would");
  app.add_option("--refuse", script.refuse_share, "Share refused with RESOURCE_EXHAUSTED, 0..1")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--wrong", script.wrong_share, "Share answered with wrong bytes, 0..1")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--silent", script.silent_share, "Share never answered, 0..1")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", script.seed, "Of the shares")->capture_default_str();
  auto* const certificate =
      app.add_option("--tls-certificate", options.tls.certificate_file, "PEM; for TLS");
  auto* const key = app.add_option("--tls-key", options.tls.key_file, "Its key");
  certificate->needs(key);
  key->needs(certificate);
  CLI11_PARSE(app, argc, argv);
  script.service_ns = static_cast<int64_t>(service);
  script.stall_ns = static_cast<int64_t>(stall);
  script.stall_every_ns = static_cast<int64_t>(stall_every);
  if (script.service_ns < 0 || script.stall_ns < 0 ||
      (script.stall_ns > 0 && script.stall_ns >= script.stall_every_ns)) {
    std::fprintf(stderr,
                 "castor-scripted-server: times are not negative, and --stall is shorter than "
                 "--stall-every\n");
    return 2;
  }
  try {
    castor::bench::Serve(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "castor-scripted-server: %s\n", error.what());
    return 1;
  }
  return 0;
}
