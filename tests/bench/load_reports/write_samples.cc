// Writes saved runs and their HdrHistogram logs into a folder, for check.py to read with other
// programs' libraries: run0.json, run0.hlog and so on.
//   load_reports_samples FOLDER

#include <cstdio>
#include <fstream>
#include <random>

#include "client/load/judge/verdict.h"
#include "client/load/measure/hdr_log.h"
#include "client/load/measure/run_json.h"
#include "tests/unit/load/made_run.h"

int main(int argc, char** argv) {
  using namespace castor::load;
  if (argc != 2) {
    std::fprintf(stderr, "usage: load_reports_samples FOLDER\n");
    return 2;
  }
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 6; ++i) {
    const RunData run = i == 0   ? EmptyRun(3)
                        : i == 1 ? WanderingRun({.seconds = 20}, random())
                                 : RandomRun(random);
    const std::string path = std::string(argv[1]) + "/run" + std::to_string(i);
    const Verdict verdict = Judge(run);
    SaveRun(path + ".json", run, i % 2 == 0 ? &verdict : nullptr);
    std::ofstream log(path + ".hlog", std::ios::binary);
    WriteHdrLog(run, log);
  }
  return 0;
}
