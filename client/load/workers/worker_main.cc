#include "client/load/workers/worker_main.h"

#include <signal.h>

#include <cstdio>
#include <utility>

namespace castor::load {

int ServeAsWorker(WorkerOptions options, PrepareJob prepare) {
  // Blocked before there are threads, so that all inherit it and only sigwait() takes a signal.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const bool quiet = options.listen.starts_with("unix:");  // the coordinator knows it
  WorkerServer server(std::move(options), std::move(prepare));
  if (!quiet)
    std::fprintf(stderr, "castor-load worker: listening on %s\n", server.address().c_str());
  int number = 0;
  sigwait(&signals, &number);
  server.Shutdown();
  return 0;
}

}  // namespace castor::load
