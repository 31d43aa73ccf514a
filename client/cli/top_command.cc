// castor top.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/screen.h"
#include "client/cli/values.h"
#include "client/top/fleet.h"
#include "client/top/live.h"

namespace castor::cli {
namespace {

struct TopFlags {
  std::vector<std::string> metrics = {"127.0.0.1:9464"};
  SecurityFlags security{};
  double interval = 1, timeout = 5;
  int64_t count = 0;  // 0: without end
  bool once = false, plain = false;
};

top::FleetOptions FleetOptionsOf(const TopFlags& flags) {
  client::ClientOptions options;
  flags.security.SetOn(&options);
  return {.addresses = flags.metrics,
          .tls = options.tls.has_value(),
          .files = options.tls.value_or(client::TlsOptions()),
          .token = options.token,
          .token_file = options.token_file,
          .allow_plaintext_token = options.allow_plaintext_token,
          .patience = std::chrono::milliseconds(static_cast<int64_t>(flags.timeout * 1000))};
}

int RunTop(const TopFlags& flags) {
  auto fleet = top::Fleet::Create(FleetOptionsOf(flags));
  if (!fleet.ok()) throw UsageError(std::string(fleet.status().message()));
  top::LiveOptions live;
  live.interval = std::chrono::milliseconds(static_cast<int64_t>(flags.interval * 1000));
  if (flags.count > 0) live.count = flags.count;
  if (flags.once) live.count = 1;
  if (flags.plain || flags.once || !IsScreen(STDOUT_FILENO)) {
    if (!live.count && isatty(STDOUT_FILENO) == 0) live.count = 1;
    if (const absl::Status status = top::PrintFrames(fleet->get(), live); !status.ok()) {
      Complain(std::string(status.message()));
      return kUsageError;
    }
  } else {
    top::ShowLive(fleet->get(), live);
  }
  // Who quits before there was an answer has not seen an error.
  const std::string problem = (*fleet)->Problem();
  if ((*fleet)->HasEverRead() || problem.empty()) return kOk;
  Complain(problem);
  return kServerError;
}

}  // namespace

Runner AddTopCommand(CLI::App* command) {
  auto flags = std::make_shared<TopFlags>();
  command
      ->add_option("--metrics", flags->metrics,
                   "Address of a server's /metrics: HOST:PORT, or a URL. For a name with several "
                   "addresses, such as a headless Service, all are shown. Repeatable")
      ->type_name("HOST:PORT")
      ->take_all()
      ->check(Name())
      ->capture_default_str()
      ->group("Connection");
  command->add_option("--timeout", flags->timeout, "Time to wait for a page, in seconds")
      ->type_name("SECONDS")
      ->transform(Number(0.001, 3600.0))
      ->capture_default_str()
      ->group("Connection");
  AddSecurityFlags(command, &flags->security, "Connection");
  command->add_option("--interval", flags->interval, "Between readings: 1s, 500ms, 2m, or seconds")
      ->type_name("TIME")
      ->transform(Seconds(0.1, 3600.0))
      ->capture_default_str()
      ->group("Output");
  CLI::Option* once =
      command->add_flag("--once", flags->once, "Print one frame as text and exit")->group("Output");
  command->add_option("--count", flags->count, "Exit after N frames")
      ->type_name("N")
      ->transform(Number(int64_t{1}, int64_t{1'000'000'000}))
      ->excludes(once)
      ->group("Output");
  command
      ->add_flag("--plain", flags->plain,
                 "Print frames as text, one below the other. This is the default without a "
                 "terminal, with one frame unless --count is given")
      ->group("Output");
  command->footer(
      "Keys: q quits, p pauses, s changes what tables are sorted by, ? explains the figures.\n"
      "Rates and percentiles are those of the last interval; figures in parentheses count from\n"
      "the server's start. NO_COLOR turns colours off. A token goes over TLS or to this machine\n"
      "alone, as with other commands; elsewhere it is left out. Exit code 1: no server could be\n"
      "read.\n"
      "Examples:\n"
      "  castor top --metrics castor-headless.inference:9464 --interval 2s\n"
      "  castor top --once --metrics https://10.0.0.7:9464 --ca ca.pem --server-name castor\n");
  return [=] { return RunTop(*flags); };
}

}  // namespace castor::cli
