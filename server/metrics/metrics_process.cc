#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "server/logging.h"
#include "server/metrics/collectors.h"
#include "server/metrics/samples.h"

namespace castor::server {
namespace {

// Seconds since the epoch at which the machine booted; 0 when unknown.
double BootTime() {
  std::ifstream stat("/proc/stat");
  for (std::string word; stat >> word;) {
    double seconds = 0;
    if (word == "btime" && stat >> seconds) return seconds;
  }
  return 0;
}

int CountOpenFiles() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int entries = 0;
  while (readdir(folder) != nullptr) ++entries;
  closedir(folder);
  return entries - 3;  // ".", ".." and the folder itself
}

class ProcessCollector : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    Samples out;
    // /proc/self/stat: the command in parentheses may hold anything; fields count from its end.
    std::ifstream file("/proc/self/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t command_end = text.rfind(')');
    if (command_end != std::string::npos) {
      std::istringstream rest(text.substr(command_end + 1));
      const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
      constexpr size_t kUserTicks = 11, kSystemTicks = 12, kThreads = 17, kStartTicks = 19,
                       kVirtualBytes = 20, kResidentPages = 21;
      if (fields.size() > kResidentPages) {
        auto number = [&](size_t field) { return std::strtod(fields[field].c_str(), nullptr); };
        const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
        const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
        out.Counter("process_cpu_seconds_total", "User and system CPU time spent.",
                    (number(kUserTicks) + number(kSystemTicks)) / ticks);
        out.Gauge("process_threads", "Threads of the process.", number(kThreads));
        out.Gauge("process_virtual_memory_bytes", "Virtual memory size.", number(kVirtualBytes));
        out.Gauge("process_resident_memory_bytes", "Resident memory size.",
                  number(kResidentPages) * page);
        if (boot_time_ > 0) {
          out.Gauge("process_start_time_seconds", "Start of the process since the epoch.",
                    boot_time_ + number(kStartTicks) / ticks);
        }
      }
    }
    if (const int open = CountOpenFiles(); open >= 0) {
      out.Gauge("process_open_fds", "Open file descriptors.", open);
    }
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
      out.Gauge("process_max_fds", "Maximum number of open file descriptors.", limit.rlim_cur);
    }
    out.Counter("castor_log_lines_dropped_total",
                "Log lines lost because standard error was too slow.", DroppedLogLines());
    return out.Take();
  }

 private:
  const double boot_time_ = BootTime();
};

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeProcessCollector() {
  return std::make_shared<ProcessCollector>();
}

}  // namespace castor::server
