// A million tokens of exact attention: far more work than anybody waits for.

#include "tests/bench/load/huge.h"
#include "tests/bench/load/requests.h"

namespace castor::bench {

void HugeAttend(const Settings& settings, Report& report) {
  HugeRequest huge = {.name = "cancelled after 2 s"};
  huge.method = huge.small_method = kAttend;
  huge.bytes = BytesOf(AttendMessage({.tokens = 1'000'000, .heads = 1, .head_dim = 1}, 1));
  huge.small = BytesOf(AttendMessage({.tokens = 16}, 2));
  MeasureHuge(settings, {}, huge, report);

  huge.name = "deadline of 2 s";
  huge.has_deadline = true;
  MeasureHuge(settings, {}, huge, report);
}

}  // namespace castor::bench
