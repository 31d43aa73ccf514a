#include "tests/bench/load/huge.h"

#include <future>
#include <optional>
#include <thread>

#include "tests/bench/load/open_loop.h"
#include "tests/bench/load/quiet.h"
#include "tests/bench/load/server_process.h"

namespace castor::bench {
namespace {

constexpr double kMaxSmallMs = 50;
constexpr double kMaxComputingMs = 20;
constexpr auto kBefore = std::chrono::milliseconds(500);  // small ones alone
constexpr auto kAfter = std::chrono::seconds(1);
constexpr auto kQuietLimit = std::chrono::seconds(5);

// A huge request in flight.
class InFlight {
 public:
  InFlight(Caller& caller, const HugeRequest& huge) : huge_(huge), sent_(Clock::now()) {
    CallSettings settings;
    if (huge.has_deadline) settings.deadline = end();
    call_ = caller.Start(huge.method, huge.bytes, settings,
                         [this](Answer answer) { answered_.set_value(std::move(answer)); });
  }

  Clock::time_point end() const { return sent_ + huge_.time; }

  // Waits until its time has passed, and cancels it unless its deadline does so.
  void WaitForEnd() {
    std::this_thread::sleep_until(end());
    if (!huge_.has_deadline) call_->Cancel();
  }

  struct End {
    bool ok = false;
    std::string text;  // what became of it, and when
  };
  End Ending() {
    const Answer answer = answered_.get_future().get();
    Codes codes;
    Count(answer.code, answer.reason, codes);
    return {answer.code == grpc::StatusCode::OK,
            TextOf(codes) + " after " + Figure(Milliseconds(answer.ended - sent_) / 1000, "s")};
  }

 private:
  const HugeRequest& huge_;
  const Clock::time_point sent_;
  std::promise<Answer> answered_;
  std::shared_ptr<StartedCall> call_;
};

// The server's first answers are slower: connections, pages, models.
void WarmUp(Caller& caller, const HugeRequest& huge) {
  for (int i = 0; i < 20; ++i) {
    (void)caller.CallAndWait(huge.small_method, huge.small,
                             {.deadline = Clock::now() + std::chrono::seconds(10)});
  }
}

std::string CountersOf(const client::MetricsPage& page) {
  const auto text = [&](const char* stage) {
    const auto count =
        client::SumOf(page, "castor_cancelled_total", std::string("stage=\"") + stage + "\"");
    return count.has_value() ? Whole(*count) : std::string("n/a");
  };
  const auto inflight = client::SumOf(page, "castor_inflight_requests");
  return "queued " + text("queued") + ", running " + text("running") + "; in flight " +
         (inflight.has_value() ? Whole(*inflight) : "n/a");
}

}  // namespace

void MeasureHuge(const Settings& settings, const std::vector<std::string>& server_flags,
                 const HugeRequest& huge, Report& report) {
  {
    const ServerProcess server(settings.server, server_flags);
    Caller small_caller(server.address()), huge_caller(server.address());
    WarmUp(small_caller, huge);
    OpenLoopOptions options = {.method = huge.small_method, .rate = 20, .regular = true};
    options.length = kBefore + huge.time + kAfter;
    auto running = std::async(std::launch::async,
                              [&] { return RunOpenLoop(small_caller, {huge.small}, options); });
    std::this_thread::sleep_for(kBefore);
    InFlight request(huge_caller, huge);
    request.WaitForEnd();
    const InFlight::End end = request.Ending();
    const Outcomes small = running.get();
    report.AtMost(huge.name + ": longest wait of a small one", Quantile(Latencies(small), 1),
                  kMaxSmallMs, "ms");
    report.Note(huge.name + ": small ones' p50; the generator's longest lag; answers",
                Figure(Quantile(Latencies(small), 0.5), "ms") + "; " +
                    Figure(Quantile(Lags(small), 1), "ms") + "; " + TextOf(CodesOf(small)));
    report.Note(huge.name + ": the huge one", end.text);
  }
  const ServerProcess server(settings.server, server_flags);
  Caller caller(server.address());
  WarmUp(caller, huge);
  InFlight request(caller, huge);
  request.WaitForEnd();
  const std::optional<double> quiet = MillisecondsUntilQuiet(server, request.end(), kQuietLimit);
  const InFlight::End end = request.Ending();
  const std::string what = huge.name + ": computing after its end";
  if (end.ok) {
    report.Note(what, "n/a: it was answered before");
  } else if (quiet.has_value()) {
    report.AtMost(what, *quiet, kMaxComputingMs, "ms");
  } else {
    report.Missing(what, "> " + Figure(Milliseconds(kQuietLimit), "ms"),
                   "≤ " + Figure(kMaxComputingMs, "ms"));
  }
  report.Note(huge.name + ": the huge one by itself; the server's count of cancelled ones",
              end.text + "; " + CountersOf(server.Metrics()));
}

}  // namespace castor::bench
