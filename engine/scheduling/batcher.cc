#include "engine/scheduling/batcher.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/base/attributes.h"

namespace castor {
namespace {

// A batch is long enough when what it pays once is at most this part of it. One that takes no
// longer than a moment may always grow: a device with many cores is not busy with less.
constexpr double kOncePart = 1.0 / 16;
constexpr double kMomentUs = 5000;
// Where several tenants wait, turns are shorter.
constexpr double kOncePartOfTurn = 1.0 / 4;
constexpr double kMomentOfTurnUs = 2000;

// Predictions are mostly within a quarter. A request that would be late even if it took so much
// less than predicted is not begun; and company leaves that much to spare.
constexpr double kMargin = 1.25;

double SpareUs(const Job& job, TimePoint now) {
  return job.deadline ? Microseconds(now, *job.deadline) : std::numeric_limits<double>::infinity();
}

// By its price alone, if that is less: admission lets an idle device try whether what was learned
// is true.
bool Hopeless(const Job& job, TimePoint now, double pace) {
  const double us = job.predicted.alone_us() / std::max(1.0, job.predicted.correction);
  return Expired(job, now) || SpareUs(job, now) * kMargin < pace * us;
}

// Never inlined: when an exception reaches a noexcept function with locals to destroy, GCC calls
// std::terminate without a current exception, and the handler could not say why the process ends.
ABSL_ATTRIBUTE_NOINLINE
JobList FormFrom(const Job& head, Queue& queue, TimePoint now, JobList* expired,
                 const Opening& opening) {
  // Choose first, remove afterwards: removing the last job destroys the group.
  const BatchLimits& limits = queue.limits();
  std::vector<const Job*> dead;
  std::vector<const Job*> chosen;
  int64_t tokens = 0;
  MemoryNeed memory;
  double us = 0;
  double spare_us = std::numeric_limits<double>::infinity();
  const double turn = queue.TurnOf(head);
  const double next_turn = queue.TurnAfter(head, head.predicted.alone_us());
  const double most_us = opening.MostUs(head, next_turn);
  const auto choose = [&](const Job& job) {
    const double more_us = chosen.empty() ? job.predicted.alone_us() : job.predicted.own_us;
    us += more_us;
    if (chosen.empty()) queue.Begin(job);
    queue.Charge(job, more_us);
    spare_us = std::min(spare_us, SpareUs(job, now));
    tokens += job.tokens;
    memory = memory + job.memory;
    chosen.push_back(&job);
  };
  // The first is taken whatever its size: a request above the limit runs alone.
  if (Hopeless(head, now, opening.pace)) {
    dead.push_back(&head);
  } else {
    choose(head);
  }
  const bool turns = queue.HasSeveralTenants();
  const double long_enough =
      std::min(most_us, std::max(head.predicted.batch_us / (turns ? kOncePartOfTurn : kOncePart),
                                 turns ? kMomentOfTurnUs : kMomentUs));
  for (const auto& [rank, job] : queue.GroupOf(head).jobs) {
    if (limits.Reached(tokens, chosen.size())) break;
    if (job.get() == &head) continue;
    if (Hopeless(*job, now, opening.pace)) {
      dead.push_back(job.get());
      continue;
    }
    if (chosen.empty()) continue;
    if (job->tenant != head.tenant && queue.TurnOf(*job) > next_turn) continue;
    if (job->tokens > limits.max_tokens - tokens) continue;
    if ((memory + job->memory).bytes() > opening.free_bytes) continue;
    const double with_it = us + job->predicted.own_us;
    if (with_it > long_enough) continue;
    if (with_it * kMargin * opening.pace > std::min(spare_us, SpareUs(*job, now))) continue;
    choose(*job);
  }
  for (const Job* job : dead) expired->push_back(queue.Remove(*job));
  JobList batch;
  batch.reserve(chosen.size());
  const double half_turn = chosen.empty() ? 0 : (turn + queue.TurnOf(head)) / 2;
  for (const Job* job : chosen) {
    batch.push_back(queue.Remove(*job));
    batch.back()->half_turn = half_turn;
  }
  return batch;
}

}  // namespace

JobList FormBatch(Queue& queue, TimePoint now, JobList* expired, const Opening& opening) noexcept {
  // A group may hold only expired requests.
  while (const Job* head = queue.FirstDue(now, opening)) {
    JobList batch = FormFrom(*head, queue, now, expired, opening);
    if (!batch.empty()) return batch;
  }
  return {};
}

}  // namespace castor
