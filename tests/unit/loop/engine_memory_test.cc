// Runs a request from start to end with each of its allocations failing in turn: that one alone, or
// also all later ones, or also all later ones that are not small. An allocation whose size depends
// on the request must end in OUT_OF_MEMORY and leave nothing behind. The engine's own bookkeeping
// ends the process on purpose. Nothing may hang.
//
// Each try runs in its own process, whose exit code reports the outcome.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/sanitizer.h"
#include "tests/unit/loop/engine_fixture.h"
#include "tests/unit/loop/failing_new.h"

namespace castor {
namespace {

enum Ending : int {
  kAnswered = 0,        // with a result, although an allocation failed
  kRefused = 10,        // OUT_OF_MEMORY, from Submit or as the answer
  kEnded = 11,          // std::terminate, because of std::bad_alloc
  kNothingFailed = 12,  // the request made fewer allocations
  kWrong = 20,
};

// Long enough for any try on a busy machine; the alarm ends a process that hangs.
constexpr unsigned kPatienceSeconds = 60;

// One answer, stored without allocating.
template <typename Result>
class OneAnswer {
 public:
  auto Slot() {
    return [this](absl::StatusOr<Result> result) {
      result_ = std::move(result);
      done_ = true;
      done_.notify_one();
    };
  }
  const absl::StatusOr<Result>& Wait() {
    done_.wait(false);
    return *result_;
  }
  void Drop() { result_.reset(); }

 private:
  std::optional<absl::StatusOr<Result>> result_;
  std::atomic<bool> done_ = false;
};

// The fixture's engine for use outside a test: each try builds and destroys one.
class Engines : public EngineFixture {
 public:
  using EngineFixture::Request;
  using EngineFixture::TextRequest;

  void TestBody() override {}

  std::unique_ptr<Engine> MakeEngine() {
    options_.models = {{"fake-model", "there"}};
    return *TryStart(options_);
  }
};

[[noreturn]] void EndOnPurpose() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    _exit(kEnded);
  } catch (...) {
    _exit(kWrong);
  }
}

int Wrong(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return kWrong;
}

bool IsIdle(const Engine& engine) {
  const LoadStats load = engine.stats().load;
  return load.queued_requests == 0 && load.inflight_requests == 0 && load.inflight_tokens == 0 &&
         load.inflight_bytes == 0;
}

// Submits a request while allocations fail, and checks that the engine is idle again afterwards.
template <typename Result, typename Make>
Ending TryOne(Engines& engines, Engine& engine, Make make, const Failing& failing) {
  auto request = make(engines);
  OneAnswer<Result> answer;
  FailAllocations(failing);
  auto ticket = engine.Submit(std::move(request), answer.Slot());
  const absl::Status status = ticket.ok() ? answer.Wait().status() : ticket.status();
  const bool failed = StopFailing();
  answer.Drop();  // returns its share of the budgets

  if (!engine.Drain(TimePoint::max())) return Ending(Wrong("the drain did not end"));
  if (!IsIdle(engine)) return Ending(Wrong("budgets are still taken"));
  if (!status.ok() && ReasonOf(status) != Reason::kOutOfMemory) {
    return Ending(Wrong("answered " + status.ToString()));
  }
  if (!failed) return status.ok() ? kNothingFailed : Ending(Wrong("refused for nothing"));
  return status.ok() ? kAnswered : kRefused;
}

template <typename Result, typename Make>
int Try(Make make, const Failing& failing) {
  const int64_t before = LiveAllocations();
  Ending ending;
  {
    Engines engines;
    const std::unique_ptr<Engine> engine = engines.MakeEngine();
    ending = TryOne<Result>(engines, *engine, make, failing);
  }
  const int64_t leaked = LiveAllocations() - before;
  if (leaked != 0) return Wrong(std::to_string(leaked) + " allocations leaked");
  return ending;
}

// Counts how the tries of a sweep ended.
template <typename Result, typename Make>
std::map<int, int> Sweep(Make make, Failing failing) {
  // Make the program's one-time allocations before forking.
  constexpr Failing kNone = {.after = int64_t{1} << 40};
  Try<Result>(make, kNone);
  EXPECT_EQ(Try<Result>(make, kNone), kNothingFailed);
  std::map<int, int> endings;
  for (failing.after = 0; failing.after < 2000; ++failing.after) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kPatienceSeconds * (kSanitized ? 4 : 1));
      std::set_terminate(EndOnPurpose);
      _exit(Try<Result>(make, failing));
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status))
        << "signal " << WTERMSIG(status) << " with allocation " << failing.after << " failing";
    const int ending = WEXITSTATUS(status);
    EXPECT_NE(ending, kWrong) << "with allocation " << failing.after << " failing";
    ++endings[ending];
    if (ending == kNothingFailed || testing::Test::HasFailure()) break;
  }
  return endings;
}

using Endings = std::map<int, int>;

class EngineMemoryTest : public testing::Test {
 protected:
  // Runs the three sweeps.
  template <typename Result, typename Make>
  void Expect(Make make) {
    Endings one = Sweep<Result>(make, {});
    EXPECT_EQ(one[kNothingFailed], 1);
    EXPECT_GT(one[kRefused], 0);
    EXPECT_GT(one[kEnded], 0);

    // Not even an error message can be allocated.
    Endings all = Sweep<Result>(make, {.permanent = true});
    EXPECT_EQ(all[kNothingFailed], 1);

    // Allocations that are not small belong to the request and never end the process.
    Endings large = Sweep<Result>(make, {.permanent = true, .at_least = 1024});
    EXPECT_EQ(large[kNothingFailed], 1);
    EXPECT_GT(large[kRefused], 0);
    EXPECT_EQ(large[kEnded], 0);
  }
};

// A deadline adds the allocation of a timer node.
constexpr TimePoint kSomeday = TimePoint::max();

TEST_F(EngineMemoryTest, AttentionOfManySequences) {
  Expect<AttentionResult>([](Engines& engines) {
    AttentionRequest request = engines.Request(1, 1000);
    request.query_lengths = std::vector<int64_t>(1000, 1);
    request.call.deadline = kSomeday;
    return request;
  });
}

TEST_F(EngineMemoryTest, ManyTokens) {
  Expect<EncodeResult>([](Engines&) {
    EncodeRequest request;
    request.input = TokenInput{std::vector<int64_t>(1000, 7), {}, {}};
    return request;
  });
}

TEST_F(EngineMemoryTest, ManyTexts) {
  Expect<EncodeResult>([](Engines&) {
    EncodeRequest request =
        Engines::TextRequest(std::vector<std::string_view>(1000, "a beaver builds a dam"));
    request.call.deadline = kSomeday;
    return request;
  });
}

// Whose answer is made on a completion thread.
TEST_F(EngineMemoryTest, SparseRowsOfManyTexts) {
  Expect<EncodeResult>([](Engines&) {
    EncodeRequest request =
        Engines::TextRequest(std::vector<std::string_view>(256, "a beaver builds a dam"));
    request.output = EncodeOutput::kSparse;
    return request;
  });
}

}  // namespace
}  // namespace castor
