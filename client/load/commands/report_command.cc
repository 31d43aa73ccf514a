#include <memory>

#include "client/cli/command.h"
#include "client/load/commands/command.h"
#include "client/load/commands/output_flags.h"
#include "client/load/measure/run_json.h"
#include "client/load/output/summary.h"

namespace castor::load {

Runner AddReportCommand(CLI::App* command) {
  auto file = std::make_shared<std::string>();
  auto output = std::make_shared<OutputFlags>();
  command->add_option("RUN", *file, "A saved run: what --json wrote")
      ->type_name("FILE")
      ->required();
  AddOutputFlags(command, output.get());
  return [=] {
    const RunData run = LoadRun(*file);
    const Verdict verdict = Judge(run);
    output->Write(run, verdict);
    const int written = cli::WriteText(SummaryText(run, verdict));
    if (written != cli::kOk) return written;
    if (!verdict.valid()) return kInvalid;
    return verdict.met() ? kMet : kMissed;
  };
}

}  // namespace castor::load
