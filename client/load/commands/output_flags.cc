#include "client/load/commands/output_flags.h"

#include <cstdio>

#include "client/cli/values.h"

namespace castor::load {

void OutputFlags::Write(const RunData& run, const Verdict& verdict) const {
  WriteReports(run, verdict, files);
  if (!folder.empty()) WriteReports(run, verdict, ReportPaths::In(folder));
}

void AddOutputFlags(CLI::App* command, OutputFlags* flags) {
  const std::string group = "Results";
  const auto file = [&](const char* name, std::string* path, const char* help) {
    command->add_option(name, *path, help)->type_name("FILE")->check(cli::FileName())->group(group);
  };
  command->add_option("-o,--out", flags->folder, "Write all of the following into this folder")
      ->type_name("FOLDER")
      ->check(cli::FileName())
      ->group(group);
  file("--json", &flags->files.json, "The run as JSON: for compare, report and size");
  file("--html", &flags->files.html, "A report in one file, which needs no network");
  file("--csv", &flags->files.csv, "A row per class and server; perf_analyzer's columns first");
  file("--hdr", &flags->files.hdr_log, "An HdrHistogram log, a line per second and class");
  file("--openmetrics", &flags->files.openmetrics, "An OpenMetrics text file");
  command->add_flag("-q,--quiet", flags->quiet, "No live view")->group(group);
}

void Say(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

}  // namespace castor::load
