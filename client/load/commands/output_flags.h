// The flags that say where results go.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"
#include "client/load/output/write_reports.h"

namespace castor::load {

struct OutputFlags {
  ReportPaths files;
  std::string folder;
  bool quiet = false;  // no live view

  // Throws std::runtime_error that names a file that cannot be written.
  void Write(const RunData& run, const Verdict& verdict) const;
};

void AddOutputFlags(CLI::App* command, OutputFlags* flags);

// One line on standard error: what is being done, or was found.
void Say(const std::string& line);

}  // namespace castor::load
