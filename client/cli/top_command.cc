// castor top: shows what servers do, live.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/screen.h"
#include "client/cli/values.h"
#include "client/file.h"
#include "client/top/fleet.h"

namespace castor::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct TopFlags {
  std::vector<std::string> metrics = {"127.0.0.1:9464"};
  SecurityFlags security{};
  double interval = 1;
  bool once = false;
};

std::string FrameText(const top::Fleet& fleet, const TopFlags& flags) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  char clock[16] = "";
  if (localtime_r(&now, &local) != nullptr) std::strftime(clock, sizeof(clock), "%H:%M:%S", &local);
  Screen screen = ScreenOf(STDOUT_FILENO);
  if (flags.once) {
    screen.rows = 0;
    screen.color = false;
  }
  std::string text;
  const top::View view = {
      .servers = fleet.servers(), .clock = clock, .now = static_cast<double>(now)};
  for (const std::string& line : top::FrameLines(view, screen)) {
    // Erasing the rest of each line, and not the screen, avoids flicker.
    text += (text.empty() ? "" : flags.once ? "\n" : "\x1b[K\n") + line;
  }
  return flags.once ? text + "\n" : "\x1b[H" + text + "\x1b[J";
}

int RunTop(TopFlags flags) {
  client::ClientOptions options;
  flags.security.ApplyTo(&options);
  const auto created = OrUsageError(top::Fleet::Create(flags.metrics, options));
  top::Fleet& fleet = *created;
  flags.once = flags.once || !IsScreen(STDOUT_FILENO);
  const milliseconds interval(static_cast<int64_t>(flags.interval * 1000));
  for (int round = 0;; ++round) {
    const Clock::time_point next = Clock::now() + interval;
    fleet.StartRound();
    const auto wait = [&] {
      fleet.Wait(std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next - Clock::now())));
    };
    // A slow server does not delay the frame, except with --once.
    while (!fleet.IsRoundComplete() && (flags.once || Clock::now() < next)) {
      fleet.Wait(milliseconds(100));
    }
    if (flags.once && !fleet.HasEverRead()) {
      PrintError(fleet.Problem());
      return kServerError;
    }
    if (!flags.once || round == 1) {  // rates need two readings
      const absl::Status status = client::WriteStandardOutput(FrameText(fleet, flags));
      if (!status.ok()) PrintError(std::string(status.message()));
      if (!status.ok() || flags.once) return status.ok() ? kOk : kUsageError;
    }
    while (Clock::now() < next) wait();
  }
}

}  // namespace

Runner AddTopCommand(CLI::App* command) {
  auto flags = std::make_shared<TopFlags>();
  AddOption(command, "Connection", "--metrics", &flags->metrics, "HOST:PORT",
            "Address of a server's /metrics: HOST:PORT, or a URL. For a name with several "
            "addresses, such as a headless Service, all are shown. Repeatable",
            Name())
      ->take_all()
      ->capture_default_str();
  AddSecurityFlags(command, &flags->security, "Connection");
  AddOption(command, "Output", "--interval", &flags->interval, "TIME",
            "Time between readings: 1s, 500ms, 2m, or seconds", Seconds(0.1, 3600.0))
      ->capture_default_str();
  command
      ->add_flag("--once", flags->once,
                 "Print one interval's frame as text and exit (default without a terminal)")
      ->group("Output");
  command->footer(
      "Shows a row for each server, model (for attention: kernel) and tenant. Rates,\n"
      "percentiles (linear within a histogram's bucket) and batches (mean number of requests)\n"
      "are those of the last interval. BUSY is the share of it in which the device computed,\n"
      "LOAD the used share of the scarcest budget. Figures in parentheses count from the\n"
      "server's start. A narrow terminal shows fewer columns. NO_COLOR turns colours off. A\n"
      "token is sent only over TLS or within this machine. Exit code 1: no server could be\n"
      "read.\n"
      "Examples:\n"
      "  castor top --metrics castor-headless.inference:9464 --interval 2s\n"
      "  castor top --once --metrics https://10.0.0.7:9464 --ca ca.pem --server-name castor\n");
  return [=] { return RunTop(*flags); };
}

}  // namespace castor::cli
