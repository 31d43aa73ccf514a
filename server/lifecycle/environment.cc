#include "server/lifecycle/environment.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace castor::server {
namespace {

// Some tens of microseconds: long enough to bridge the gap between two layers of a model, and short
// compared with any batch.
constexpr char kSpinIterations[] = "3000";

bool SetSpinning() {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) {
    return false;
  }
  setenv("GOMP_SPINCOUNT", kSpinIterations, /*overwrite=*/1);
  return true;
}

}  // namespace

void SetEnvironment(char** argv) {
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (length <= 0) return;  // without /proc only the settings are lost
  program[length] = '\0';
  if (SetSpinning()) execv(program, argv);
}

}  // namespace castor::server
