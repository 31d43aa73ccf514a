#include "client/load/output/write_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "client/load/measure/run_json.h"
#include "client/load/output/csv.h"
#include "client/load/output/html.h"
#include "tests/support/load_runs.h"
#include "tests/support/temporary_folder.h"

namespace castor::load {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

size_t FilesIn(const std::string& folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(WriteReportsTest, WritesEachReportIntoAFolderThatItMakes) {
  const TemporaryFolder folder;
  const RunData run = SimulateRun({.seconds = 2});
  const Verdict verdict = VerdictOf(run, true);
  WriteReports(run, verdict, ReportPaths::In(folder / "new/folder"));
  EXPECT_EQ(FilesIn(folder / "new/folder"), 5u);
  EXPECT_EQ(Content(folder / "new/folder/run.csv"), CsvText(run));
  EXPECT_EQ(Content(folder / "new/folder/run.html"), ReportHtml(run, verdict));
  EXPECT_THAT(Content(folder / "new/folder/run.txt"), HasSubstr("# EOF\n"));
  EXPECT_THAT(Content(folder / "new/folder/run.hlog"), HasSubstr("HISTFAAA"));
  EXPECT_EQ(LoadRun(folder / "new/folder/run.json").Total().planned(), run.Total().planned());
}

TEST(WriteReportsTest, WritesWhatItIsAskedForAlone) {
  const TemporaryFolder folder;
  ReportPaths paths;
  paths.csv = folder / "a.csv";
  WriteReports(SimulateRun({.seconds = 1}), {}, paths);
  EXPECT_EQ(FilesIn(folder.path()), 1u);
}

TEST(WriteReportsTest, OneReportThatCannotBeWrittenDoesNotCostTheOthers) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "file", "x");
  ReportPaths paths;
  paths.json = folder / "file/run.json";  // a file is no folder
  paths.csv = folder / "run.csv";
  const RunData run = SimulateRun({.seconds = 1});
  EXPECT_THAT([&] { WriteReports(run, {}, paths); },
              ThrowsMessage<std::runtime_error>(HasSubstr("file/run.json'")));
  EXPECT_EQ(Content(folder / "run.csv"), CsvText(run));
}

TEST(WriteFileTest, ReplacesAFileAsAWhole) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "a", "a longer text");
  std::ifstream old(folder / "a");  // whoever reads the old one goes on reading it
  WriteFileAtomically(folder / "a", "short");
  EXPECT_EQ(Content(folder / "a"), "short");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(old), {}), "a longer text");
  EXPECT_EQ(FilesIn(folder.path()), 1u) << "a draft was left";
}

TEST(WriteFileTest, FollowsLinksAndWritesDevices) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  WriteFileAtomically(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(Content(folder / "target"), "new");
  WriteFileAtomically("/dev/null", "gone");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(WriteFileTest, LeavesTheOldFileWhenItFails) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "d");
  EXPECT_THAT([&] { WriteFileAtomically(folder / "d", "x"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("/d'")));
  EXPECT_THAT([] { WriteFileAtomically("/proc/no/such", "x"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("'/proc/no/such': ")));
}

}  // namespace
}  // namespace castor::load
