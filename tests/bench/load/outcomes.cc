#include "tests/bench/load/outcomes.h"

#include <algorithm>
#include <cmath>

#include "client/error.h"

namespace castor::bench {

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

std::vector<double> Latencies(const Outcomes& outcomes) {
  std::vector<double> latencies;
  for (const Outcome& call : outcomes.calls) {
    const double latency = Milliseconds(call.ended - call.intended);
    const bool ok = call.code == grpc::StatusCode::OK;
    latencies.push_back(ok ? latency : std::max(latency, Milliseconds(outcomes.deadline)));
  }
  return latencies;
}

std::vector<double> Lags(const Outcomes& outcomes) {
  std::vector<double> lags;
  for (const Outcome& call : outcomes.calls) {
    lags.push_back(Milliseconds(call.sent - call.intended));
  }
  return lags;
}

Fate FateOf(const Outcome& call, std::chrono::milliseconds deadline) {
  const bool ok = call.code == grpc::StatusCode::OK;
  const Clock::duration latency = call.ended - call.intended;
  if (ok && latency <= deadline) return Fate::kGood;
  return ok || 2 * latency > deadline ? Fate::kLate : Fate::kRefused;
}

Tally TallyOf(const Outcomes& outcomes) {
  Tally tally;
  // The queues fill during the first deadline's length, and answers after the schedule's end were
  // given without the load.
  const auto from = outcomes.begin + outcomes.deadline;
  const auto to = outcomes.begin + std::chrono::duration_cast<Clock::duration>(outcomes.length);
  int64_t counted = 0;
  for (const Outcome& call : outcomes.calls) {
    switch (FateOf(call, outcomes.deadline)) {
      case Fate::kGood:
        ++tally.good;
        counted += call.ended >= from && call.ended < to;
        break;
      case Fate::kLate:
        ++tally.late;
        break;
      case Fate::kRefused:
        tally.refused_sent_ms.push_back(Milliseconds(call.ended - call.sent));
        tally.refused_intended_ms.push_back(Milliseconds(call.ended - call.intended));
        break;
    }
  }
  const double seconds = Milliseconds(to - from) / 1000;
  if (seconds > 0) tally.goodput = static_cast<double>(counted) / seconds;
  return tally;
}

void Append(const Tally& more, Tally& tally) {
  tally.good += more.good;
  tally.late += more.late;
  const auto append = [](const std::vector<double>& from, std::vector<double>& to) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(more.refused_sent_ms, tally.refused_sent_ms);
  append(more.refused_intended_ms, tally.refused_intended_ms);
}

void Count(grpc::StatusCode code, const std::string& reason, Codes& codes) {
  std::string name(client::NameOf(code));
  if (!reason.empty() && reason != name) name += " " + reason;
  // The client's own deadline or cancellation says nothing about the server's answer.
  if (reason.empty() && code != grpc::StatusCode::OK) name += " without details";
  ++codes[name];
}

Codes CodesOf(const Outcomes& outcomes) {
  Codes codes;
  for (const Outcome& call : outcomes.calls) Count(call.code, call.reason, codes);
  return codes;
}

std::string TextOf(const Codes& codes) {
  std::string text;
  for (const auto& [name, count] : codes) {
    if (!text.empty()) text += ", ";
    text += name + " " + std::to_string(count);
  }
  return text.empty() ? "none" : text;
}

void Append(const Outcomes& more, Outcomes& outcomes) {
  outcomes.length += more.length;
  outcomes.deadline = more.deadline;
  outcomes.calls.insert(outcomes.calls.end(), more.calls.begin(), more.calls.end());
}

}  // namespace castor::bench
