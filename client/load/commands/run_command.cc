#include <memory>

#include "client/cli/command.h"
#include "client/load/commands/command.h"
#include "client/load/commands/output_flags.h"
#include "client/load/commands/session.h"
#include "client/load/commands/traffic_flags.h"
#include "client/load/output/summary.h"

namespace castor::load {
namespace {

int RunOnce(const TrafficFlags& flags, const WorkerFlags& workers, const OutputFlags& output) {
  WatchForStop();
  Session session(flags, flags.MakeWorkload(), workers, output.quiet);
  const RunData run = session.Run();
  const Verdict verdict = session.Judge(run);
  const int written = cli::WriteText(SummaryText(run, verdict));
  output.Write(run, verdict);
  if (StopRequested()) return kInterrupted;
  if (written != cli::kOk) return written;
  if (!verdict.valid()) return kInvalid;
  return verdict.met() ? kMet : kMissed;
}

}  // namespace

Runner AddRunCommand(CLI::App* command) {
  auto flags = std::make_shared<TrafficFlags>();
  auto workers = std::make_shared<WorkerFlags>();
  auto output = std::make_shared<OutputFlags>();
  AddTrafficFlags(command, flags.get(), /*searching=*/false);
  AddWorkerFlags(command, workers.get());
  AddOutputFlags(command, output.get());
  return [=] { return RunOnce(*flags, *workers, *output); };
}

}  // namespace castor::load
