// Writes a run's files, each whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "client/load/judge/verdict.h"
#include "client/load/measure/run_data.h"

namespace castor::load {

// Paths; an empty one is not written.
struct ReportPaths {
  std::string json;         // measure/run_json.h
  std::string html;         // html.h
  std::string csv;          // csv.h
  std::string openmetrics;  // openmetrics.h
  std::string hdr_log;      // measure/hdr_log.h

  // run.json, run.html, run.csv, run.txt and run.hlog in `folder`.
  static ReportPaths In(const std::string& folder);
};

// Makes folders that are missing. Throws std::runtime_error that names the file and the reason when
// one cannot be written; others are written all the same, so that one full disk or mistyped path
// does not cost the run.
void WriteReports(const RunData& run, const Verdict& verdict, const ReportPaths& paths);

// A new file beside it takes the place of `path` once it is complete and on the disk, so that
// whoever reads it sees the old content or the new. What is no regular file, such as /dev/stdout or
// a pipe, is written directly. Throws std::runtime_error that names the file.
void WriteFileAtomically(const std::string& path, std::string_view content);

}  // namespace castor::load
