#include "tests/bench/load/pinned.h"

#include "tests/bench/load/closed_loop.h"
#include "tests/bench/load/requests.h"

namespace castor::bench {

PinnedTextServer::PinnedTextServer(const Settings& settings)
    : process_(settings.server, {"--model", "encoder=" + settings.model}, processors_.server),
      here_(processors_.client),
      caller_(process_.address(), 16),
      texts_(ShortTexts(512, 1)) {
  (void)Capacity(std::chrono::seconds(1));  // warms it up
}

double PinnedTextServer::Capacity(std::chrono::duration<double> length) {
  return MeasureCapacity(caller_, kEncode, texts_, 32, length);
}

Outcomes PinnedTextServer::Run(double rate, std::chrono::duration<double> length, uint64_t seed,
                               const std::string& tenant) {
  OpenLoopOptions options = {.method = kEncode, .rate = rate, .length = length};
  options.deadline = std::chrono::seconds(1);
  options.seed = seed;
  options.tenant = tenant;
  return RunOpenLoop(caller_, texts_, options);
}

}  // namespace castor::bench
