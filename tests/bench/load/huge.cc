// One request that is far too large for its time, during small ones that must not be slowed.

#include <algorithm>
#include <array>
#include <deque>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "tests/bench/load/bench.h"

namespace castor::bench {
namespace {

constexpr double kMaxSmallMs = 50;
constexpr double kMaxComputingMs = 200;
constexpr Seconds kBefore{0.5}, kAfter{1};  // small ones alone
constexpr std::chrono::seconds kQuietLimit{5};

struct Huge {
  std::string name;
  Payload payload;
  bool has_deadline = false;  // or the caller cancels it
  std::chrono::milliseconds time{2000};
  Payload small;  // sent every 50 ms meanwhile
};

Calls RunHuge(const Server& server, const Huge& huge) {
  Traffic traffic = {.payloads = {huge.payload}, .connections = 1};
  traffic.deadline = huge.has_deadline ? std::chrono::nanoseconds(huge.time)
                                       : std::chrono::nanoseconds(std::chrono::minutes(5));
  if (!huge.has_deadline) traffic.cancel_after = huge.time;
  return RunOpen(server, traffic, 1, Seconds(0.5), /*constant=*/true);
}

// Milliseconds after `since` until the server stops computing; nullopt: longer than the limit.
std::optional<double> MillisecondsUntilQuiet(const Server& server, Clock::time_point since) {
  constexpr auto kStep = std::chrono::milliseconds(2);
  constexpr auto kWindow = std::chrono::milliseconds(100);
  std::deque<std::pair<Clock::time_point, std::chrono::nanoseconds>> window;
  for (auto next = since; next < since + kQuietLimit; next += kStep) {
    std::this_thread::sleep_until(next);
    const auto now = Clock::now();
    const std::chrono::nanoseconds used = server.CpuTime();
    window.emplace_back(now, used);
    // Whatever made this sample's window busy was done before the oldest sample left it.
    while (window.size() > 1 && used - window.front().second >= kWindow / 20) window.pop_front();
    if (now - window.front().first >= kWindow) {
      return std::max(0.0, Milliseconds(window.front().first - since));
    }
  }
  return std::nullopt;
}

// Twice on a fresh server: with the small ones, for their latency, and without them, for how long
// the server goes on computing after the end.
void Measure(const Settings& settings, const std::vector<std::string>& flags, const Huge& huge,
             Report& report) {
  const Traffic small = {.payloads = {huge.small}, .connections = 1};
  {
    const Server server(settings.server, flags);
    (void)RunClosed(server, small, 1, Seconds(0.3));  // warms it up
    auto running = std::async(std::launch::async, [&] {
      return RunOpen(server, small, 20, kBefore + huge.time + kAfter, /*constant=*/true);
    });
    std::this_thread::sleep_for(kBefore);
    const Calls one = RunHuge(server, huge);
    const Calls calls = running.get();
    report.AtMost(huge.name + ": longest wait of a small one", Quantile(calls.Latencies(), 1),
                  kMaxSmallMs, "ms");
    report.Note(huge.name + ": small ones' p50; the generator's p99 lag; answers; the huge one",
                Figure(Quantile(calls.Latencies(), 0.5), "ms") + "; " +
                    Figure(calls.P99Lag(), "ms") + "; " + calls.Codes() + "; " + one.Codes());
  }
  const Server server(settings.server, flags);
  (void)RunClosed(server, small, 1, Seconds(0.3));
  const Calls one = RunHuge(server, huge);
  const std::string what = huge.name + ": computing after its end";
  if (one.calls.empty() || one.calls[0].code == grpc::StatusCode::OK) {
    return report.Note(what, "n/a: it was answered before");
  }
  const std::optional<double> quiet = MillisecondsUntilQuiet(server, one.calls[0].ended);
  report.AtMost(what, quiet.value_or(Milliseconds(kQuietLimit)), kMaxComputingMs, "ms");
}

std::string Text(const char* kind, std::mt19937_64& random) {
  constexpr size_t kBytes = 1 << 20;
  const std::string_view name = kind;
  std::string text;
  while (text.size() + 3 <= kBytes) {
    if (name == "Thai") {
      text += "\xE0\xB8";  // U+0E01 to U+0E2E, the consonants
      text += static_cast<char>(0x81 + random() % 46);
    } else {
      text += static_cast<char>('a' + random() % 26);
      if (name == "words" && random() % 5 == 0) text += ' ';
    }
  }
  return text;
}

}  // namespace

// A million tokens of exact attention: far more work than anybody waits for.
void HugeAttend(const Settings& settings, Report& report) {
  Huge huge = {.name = "cancelled after 2 s",
               .payload = Attend(1'000'000, 1, 1, 1),
               .small = Attend(16, 4, 32, 2)};
  Measure(settings, {}, huge, report);
  huge.name = "deadline of 2 s";
  huge.has_deadline = true;
  Measure(settings, {}, huge, report);
}

// 100 texts of 1 MiB: more bytes than a tokenizer reads in the time that a small one may wait. It
// stops words between two of them. Letters without a space, which have no place to stop, it reads
// at their ends only, whatever their script.
void HugeText(const Settings& settings, Report& report) {
  struct Case {
    const char* kind;
    bool has_deadline;
    std::chrono::milliseconds time;
  };
  using std::chrono::seconds;
  constexpr std::array<Case, 5> kCases = {{{"words", true, seconds(5)},
                                           {"words", false, seconds(1)},
                                           {"Thai", true, seconds(5)},
                                           {"Thai", false, seconds(1)},
                                           {"Latin", false, seconds(1)}}};
  for (const Case& one : kCases) {
    std::mt19937_64 random(1);
    std::vector<std::string> texts;
    for (int i = 0; i < 100; ++i) texts.push_back(Text(one.kind, random));
    const Huge huge = {.name = std::string(one.kind) +
                               (one.kind == std::string("words") ? "" : " without spaces") +
                               (one.has_deadline ? ", deadline of 5 s" : ", cancelled after 1 s"),
                       .payload = Encode(texts),
                       .has_deadline = one.has_deadline,
                       .time = one.time,
                       .small = Encode({"two words"})};
    Measure(settings, {"--model", "encoder=" + settings.model, "--max-message-bytes", "256MiB"},
            huge, report);
  }
}

// 65,536 ranges over a few hundred tokens: a small request, whose rows are read 64 times for each
// range. They are pooled in steps, between which short ones pass.
void ManySpans(const Settings& settings, Report& report) {
  constexpr int kSequences = 8, kTokens = 64, kRanges = 65'536;
  for (const auto& [name, pooling] : {std::pair("means", v1::MEAN),
                                      {"weighted means", v1::WEIGHTED_MEAN},
                                      {"maxima", v1::MAXIMUM}}) {
    v1::EncodeRequest request;
    for (int s = 0; s < kSequences; ++s) {
      for (int t = 0; t < kTokens; ++t) request.mutable_tokens()->add_ids(1000 + 7 * t + s);
      request.mutable_tokens()->add_lengths(kTokens);
    }
    for (int i = 0; i < kRanges; ++i) {
      v1::Spans::Range* const range = request.mutable_spans()->add_ranges();
      range->set_sequence(i % kSequences);
      range->set_end(kTokens);
    }
    request.set_pooling(pooling);
    request.set_dimensions(1);
    const Huge huge = {
        .name = std::string(name) + " of spans, cancelled after 0.25 s",
        .payload = {.encode = true, .message = grpc::Slice(request.SerializeAsString())},
        .time = std::chrono::milliseconds(250),
        .small = Encode({"two words"})};
    Measure(settings, {"--model", "encoder=" + settings.model}, huge, report);
  }
}

}  // namespace castor::bench
