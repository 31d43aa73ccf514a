#include <memory>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/load/commands/command.h"
#include "client/load/commands/traffic_flags.h"
#include "client/load/drive/calibrate.h"
#include "client/load/workload/units.h"

namespace castor::load {
namespace {

int RunCalibrate(const TrafficFlags& flags, const std::string& length) {
  const auto time = ParseDuration(length);
  if (!time || time->count() <= 0) {
    throw cli::UsageError("--length: '" + length + "' is no duration, such as 2s");
  }
  const DriveOptions options = flags.MakeDriveOptions();
  Driver driver(flags.MakeWorkload(), options);
  driver.BuildPayloads();
  const Calibration found = Calibrate(driver, options.lanes, options.connections, *time);
  const cli::Rows rows = {
      {"requests per second", cli::FormatReal(found.rate, "%.0f")},
      {"processor time per request",
       cli::FormatMicroseconds(found.cpu_us) + ", the echo's among it"},
      {"lag at a quarter of that rate: p50, p99", cli::FormatMicroseconds(found.lag_p50_us) + ", " +
                                                      cli::FormatMicroseconds(found.lag_p99_us)}};
  return cli::WriteText(cli::FormatRows(rows));
}

}  // namespace

Runner AddCalibrateCommand(CLI::App* command) {
  auto flags = std::make_shared<TrafficFlags>();
  auto length = std::make_shared<std::string>("2s");
  AddTrafficFlags(command, flags.get(), /*searching=*/false);
  command->add_option("--length", *length, "Of each of the two measurements")
      ->type_name("TIME")
      ->capture_default_str();
  command->footer("Sends the workload's requests to an echo in this process: no server is needed.");
  return [=] { return RunCalibrate(*flags, *length); };
}

}  // namespace castor::load
