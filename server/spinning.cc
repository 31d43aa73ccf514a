#include "server/spinning.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace castor::server {
namespace {

constexpr char kSpinCount[] = "GOMP_SPINCOUNT";

// Some tens of microseconds: long enough to bridge the gap between two layers of a model, short
// against any batch.
constexpr char kIterations[] = "3000";

}  // namespace

void SpinBriefly(char** argv) {
  if (std::getenv(kSpinCount) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (length <= 0) return;  // without /proc nothing is lost but the setting
  program[length] = '\0';
  setenv(kSpinCount, kIterations, /*overwrite=*/1);
  execv(program, argv);
}

}  // namespace castor::server
