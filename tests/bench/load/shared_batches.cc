// Callers that send their next text once they have an answer: do they share batches, and is a lone
// one not delayed for company that never comes?

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/load/closed_loop.h"
#include "tests/bench/load/requests.h"
#include "tests/bench/load/scenario.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {
namespace {

struct Callers {
  int count;
  double least_percent;  // of the answers without waiting
};
constexpr std::array<Callers, 4> kCallers = {{{1, 95}, {2, 110}, {4, 95}, {16, 95}}};

struct TextServer {
  ServerProcess process;
  Caller caller;

  TextServer(const Settings& settings, const std::string& delay)
      : process(settings.server, {"--model", settings.model, "--batch-delay", delay}),
        caller(process.address()) {}
};

}  // namespace

void SharedBatches(const Settings& settings, Report& report) {
  TextServer never(settings, "0");
  TextServer adaptive(settings, "auto");
  const std::vector<grpc::ByteBuffer> texts = ShortTexts(64, 1);
  for (const Callers& callers : kCallers) {
    double without = 0, with = 0;  // answers per second, summed
    const auto measure = [&](TextServer& server) {
      return MeasureCapacity(server.caller, kEncode, texts, callers.count, settings.phase / 4);
    };
    for (int round = 0; round < settings.rounds; ++round) {
      // In turns, and both first: the machine's speed drifts.
      without += measure(never);
      with += measure(adaptive);
      with += measure(adaptive);
      without += measure(never);
    }
    const int turns = 2 * settings.rounds;
    const std::string name = Whole(callers.count) + " at a time: ";
    report.Note(name + "answers without waiting for company, and with",
                Figure(without / turns) + ", " + Figure(with / turns, "/s"));
    report.AtLeast(name + "with, of without", 100 * with / without, callers.least_percent, "%");
  }
}

}  // namespace castor::bench
