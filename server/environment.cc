#include "server/environment.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>

namespace castor::server {
namespace {

// Some tens of microseconds: long enough to bridge the gap between two layers of a model, and short
// compared with any batch.
constexpr char kSpinIterations[] = "3000";

// 1: madvise, which asks for huge pages where the system grants them on request.
constexpr char kHugePages[] = "glibc.malloc.hugetlb=1";

bool SetSpinning() {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) {
    return false;
  }
  setenv("GOMP_SPINCOUNT", kSpinIterations, /*overwrite=*/1);
  return true;
}

bool SetHugePages() {
  const char* given = std::getenv("GLIBC_TUNABLES");
  std::string tunables = given == nullptr ? "" : given;
  if (tunables.find("glibc.malloc.hugetlb") != std::string::npos) return false;
  if (!tunables.empty()) tunables += ':';
  setenv("GLIBC_TUNABLES", (tunables + kHugePages).c_str(), /*overwrite=*/1);
  return true;
}

}  // namespace

void SetEnvironment(char** argv) {
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (length <= 0) return;  // without /proc only the settings are lost
  program[length] = '\0';
  const bool spinning = SetSpinning();
  const bool huge_pages = SetHugePages();
  if (spinning || huge_pages) execv(program, argv);
}

}  // namespace castor::server
