// Rules on the answers: all came, the server counted as many, and those compared were right.

#include <optional>
#include <string_view>

#include "client/cli/report.h"
#include "client/load/judge/rules.h"

namespace castor::load {
namespace {

using Counts = std::array<int64_t, kOutcomes>;

int64_t& At(Counts& counts, Outcome outcome) { return counts[static_cast<int>(outcome)]; }
int64_t At(const Counts& counts, Outcome outcome) { return counts[static_cast<int>(outcome)]; }

std::string_view LabelOf(std::string_view series, const std::string& label) {
  const std::string opening = label + "=\"";
  const size_t begin = series.find(opening);
  if (begin == std::string_view::npos) return "";
  const std::string_view rest = series.substr(begin + opening.size());
  return rest.substr(0, rest.find('"'));
}

Outcome OutcomeOf(std::string_view code) {
  if (code == "OK") return Outcome::kOk;
  if (code == "RESOURCE_EXHAUSTED" || code == "UNAVAILABLE") return Outcome::kRefused;
  if (code == "DEADLINE_EXCEEDED") return Outcome::kExpired;
  if (code == "CANCELLED") return Outcome::kCancelled;
  return Outcome::kFailed;
}

// What the server counted between the two readings; nullopt: its counters went back.
std::optional<Counts> CountedBy(const ServerCounts& server) {
  Counts counts{};
  for (const auto& [series, after] : server.after) {
    if (!series.starts_with("castor_requests_total{")) continue;
    const std::string_view method = LabelOf(series, "method");
    if (method != "attend" && method != "encode") continue;
    const auto found = server.before.find(series);
    const double added = after - (found == server.before.end() ? 0 : found->second);
    if (!(added >= 0)) return std::nullopt;
    At(counts, OutcomeOf(LabelOf(series, "code"))) += static_cast<int64_t>(added);
  }
  return counts;
}

int64_t Sum(const Counts& counts) {
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  return sum;
}

// The calls that reached, or should have reached, the server.
Counts SentTo(const RunData& run, size_t endpoint) {
  Counts counts = run.servers[endpoint].calls;
  if (Sum(counts) == 0) counts = run.OfEndpoint(endpoint).outcomes;
  At(counts, Outcome::kDropped) = 0;
  return counts;
}

// What differs, or "". Calls that this client ended itself, by cancelling or by their deadline, may
// have ended in any way at the server in the meantime, or not have begun there; all others must
// have ended there as here.
std::string Difference(const Counts& client, const Counts& server) {
  const int64_t ended_here = At(client, Outcome::kCancelled) + At(client, Outcome::kExpired);
  std::string text;
  const auto compare = [&](const std::string& what, int64_t here, int64_t there, int64_t least,
                           int64_t greatest) {
    if (there >= least && there <= greatest) return;
    text += (text.empty() ? "" : ", ") + what + " " + std::to_string(here) + " here and " +
            std::to_string(there) + " there";
  };
  for (const Outcome outcome : {Outcome::kOk, Outcome::kRefused, Outcome::kFailed}) {
    const int64_t here = At(client, outcome);
    compare(NameOf(outcome), here, At(server, outcome), here, here + ended_here);
  }
  const int64_t all = Sum(client);
  compare("in all", all, Sum(server), all - ended_here, all);
  return text;
}

}  // namespace

Finding CheckAllAnswered(const RunData& run) {
  int64_t unfinished = 0;
  for (const ClientLoad& client : run.clients) unfinished += client.unfinished;
  if (unfinished == 0) return {"all-answered", true, "every request that was sent ended"};
  return {"all-answered", false,
          std::to_string(unfinished) +
              " requests never ended, not even by their deadline: they are in no figure, so the "
              "figures are too good; this is a defect of the client"};
}

Finding CheckCountsAgree(const RunData& run) {
  std::string problems;
  int64_t checked = 0, calls = 0, ended_here = 0;
  for (size_t i = 0; i < run.endpoints.size() && i < run.servers.size(); ++i) {
    const ServerCounts& server = run.servers[i];
    if (server.endpoint.empty() || server.before.empty() || server.after.empty()) continue;
    ++checked;
    const Counts client = SentTo(run, i);
    calls += Sum(client);
    ended_here += At(client, Outcome::kCancelled) + At(client, Outcome::kExpired);
    const std::optional<Counts> counted = CountedBy(server);
    const std::string difference =
        counted ? Difference(client, *counted) : "its counters went back: it was started again";
    if (difference.empty()) continue;
    problems += (problems.empty() ? "" : "; ") + run.endpoints[i] + ": " + difference;
  }
  if (!problems.empty()) {
    return {"counts-agree", false,
            "the server's count of calls is not this client's (" + problems +
                "): calls did not reach it, or others call it as well"};
  }
  if (checked == 0) {
    return {"counts-agree", true, "not checked: no metrics of a server were read (--metrics)"};
  }
  std::string text = "the servers counted the same " + std::to_string(calls) + " calls by code";
  if (ended_here > 0) {
    text += ", but for the " + std::to_string(ended_here) +
            " that were cancelled or expired, which may end there in another way";
  }
  if (checked < static_cast<int64_t>(run.endpoints.size())) {
    text += "; metrics were read of " + std::to_string(checked) + " of " +
            std::to_string(run.endpoints.size()) + " endpoints";
  }
  return {"counts-agree", true, text};
}

Finding CheckVerified(const RunData& run) {
  const Verified verified = run.Total().verified;
  if (verified.asked == 0) return {"verified", true, "not checked: no answers were compared"};
  const int64_t compared = verified.equal + verified.different;
  std::string text = std::to_string(compared) + " answers were compared with those of the same " +
                     "requests sent alone";
  if (!verified.error_e9.empty()) {
    const auto error = [&](double quantile) {
      const auto billionths = static_cast<double>(verified.error_e9.ValueAt(quantile));
      return cli::FormatReal(billionths / 1e9, "%.2e");
    };
    text += "; " + std::to_string(verified.recomputed) +
            " were computed here: relative error p50 " + error(0.5) + ", p99 " + error(0.99) +
            ", max " + error(1);
  }
  if (verified.different > 0) {
    return {"verified", false,
            text + "; " + std::to_string(verified.different) +
                " have other bytes: an answer depends on what runs beside it"};
  }
  if (compared == 0) return {"verified", false, text + ", though that was asked for"};
  return {"verified", true, text + "; all have the same bytes"};
}

}  // namespace castor::load
