// A stand-in for `castor-load`, with the fake job:
//   load_fake_worker worker --listen ADDRESS --token FILE
//   load_fake_worker parent    starts two workers, prints their process ids, and waits for a signal
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "client/load/workers/local_workers.h"
#include "client/load/workers/token.h"
#include "client/load/workers/worker_main.h"
#include "tests/integration/load_fake_job.h"

int main(int argc, char** argv) {
  using namespace castor::load;
  if (argc == 2 && std::strcmp(argv[1], "parent") == 0) {
    const LocalWorkers workers(2);
    std::printf("%d %d\n", workers.processes()[0], workers.processes()[1]);
    std::fflush(stdout);
    pause();
    return 0;
  }
  if (argc != 6) return 2;
  return ServeAsWorker(
      {.listen = argv[3], .token = ReadToken(argv[5]), .version = castor::testing::kFakeVersion},
      castor::testing::PrepareFake);
}
