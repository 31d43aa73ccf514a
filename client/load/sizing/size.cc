#include "client/load/sizing/size.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>

namespace castor::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostTimesCapacity = 8;  // replicas that are tried
constexpr int64_t kRequests = 400'000;
constexpr int64_t kRequestsOfReplica = 2'000;

class Sizing {
 public:
  Sizing(const ReplicaModel& model, const SizeRequest& request, Balancing balancing)
      : model_(model), request_(request), balancing_(balancing) {
    fewest_ = static_cast<int>(std::floor(request.rate / model.capacity)) + 1;
    most_ = kMostTimesCapacity * fewest_;
  }

  SizeAnswer Answer() {
    SizeAnswer answer{.balancing = balancing_};
    answer.replicas = Least(1);
    if (answer.replicas == 0) {
      throw std::invalid_argument("not even " + std::to_string(most_) +
                                  " replicas meet the goals, eight times what the rate needs: the "
                                  "goals are too near the latency of an idle server");
    }
    answer.least = Least(std::exp(-Error(answer.replicas)));
    answer.greatest = Least(std::exp(Error(answer.replicas)));
    answer.with_all = At(answer.replicas);
    if (answer.replicas > 1) answer.with_one_lost = At(answer.replicas - 1);
    for (const auto& [replicas, point] : points_) answer.curve.push_back(point);
    return answer;
  }

 private:
  // What the model and the simulation's length leave open, as a share of latency.
  double Error(int replicas) { return std::hypot(model_.error, 2 * At(replicas).noise); }

  // The least number whose latencies, times `factor`, meet all goals; 0 when none does.
  int Least(double factor) {
    const auto meets = [&](int replicas) { return At(replicas).worst * factor <= 1; };
    int missed = fewest_ - 1;
    int met = fewest_;
    for (int step = 1; !meets(met); step *= 2) {
      if (met == most_) return 0;
      missed = met;
      met = std::min(met + step, most_);
    }
    while (met - missed > 1) {
      const int middle = missed + (met - missed) / 2;
      (meets(middle) ? met : missed) = middle;
    }
    return met;
  }

  const SizePoint& At(int replicas) {
    const auto known = points_.find(replicas);
    if (known != points_.end()) return known->second;
    const QueueResult result =
        SimulateQueues({.times = model_.times,
                        .replica = model_.replica,
                        .replicas = replicas,
                        .balancing = balancing_,
                        .callers = request_.callers,
                        .rate = request_.rate,
                        .burstiness = request_.burstiness,
                        .requests = std::max(kRequests, kRequestsOfReplica * replicas),
                        .seed = request_.seed});
    SizePoint point{.replicas = replicas,
                    .utilization = request_.rate / (model_.capacity * replicas)};
    for (const LatencyGoal& goal : request_.goals) {
      point.latency_ns.push_back(result.latency.ValueAt(goal.quantile));
      const double over =
          static_cast<double>(point.latency_ns.back()) / static_cast<double>(goal.limit.count());
      if (over <= point.worst) continue;
      point.worst = over;
      point.noise = result.NoiseAt(goal.quantile);
    }
    return points_.emplace(replicas, std::move(point)).first->second;
  }

  const ReplicaModel& model_;
  const SizeRequest& request_;
  const Balancing balancing_;
  int fewest_ = 1;  // whose capacity is above the rate
  int most_ = 1;
  std::map<int, SizePoint> points_;
};

Json ToJson(const SizePoint& point) {
  return {{"replicas", point.replicas},
          {"utilization", point.utilization},
          {"latency_ns", point.latency_ns},
          {"worst", point.worst},
          {"noise", point.noise}};
}

}  // namespace

std::vector<SizeAnswer> SizeFor(const ReplicaModel& model, const SizeRequest& request) {
  if (request.goals.empty()) throw std::invalid_argument("sizing needs a latency goal");
  if (!(request.rate > 0)) throw std::invalid_argument("sizing needs a rate above 0");
  for (const LatencyGoal& goal : request.goals) {
    const double idle = model.times.Quantile(goal.quantile) * 1e9;
    if (idle <= static_cast<double>(goal.limit.count())) continue;
    char text[160];
    std::snprintf(text, sizeof(text),
                  "no number of replicas keeps p%g below %.3g ms: on an idle server it is %.3g ms",
                  100 * goal.quantile, static_cast<double>(goal.limit.count()) / 1e6, idle / 1e6);
    throw std::invalid_argument(text);
  }
  std::vector<SizeAnswer> answers;
  for (const Balancing balancing :
       {Balancing::kRoundRobin, Balancing::kLeastRequest, Balancing::kPowerOfTwo}) {
    answers.push_back(Sizing(model, request, balancing).Answer());
  }
  return answers;
}

nlohmann::ordered_json ToJson(const ReplicaModel& model) {
  Json json = {{"lanes", model.replica.lanes},
               {"max_batch", model.replica.max_batch},
               {"occupied", model.replica.occupied},
               {"marginal", model.replica.marginal},
               {"mean_service_seconds", model.times.mean()},
               {"service_rate", model.times_rate},
               {"capacity", model.capacity},
               {"error", model.error},
               {"warnings", model.warnings}};
  Json& points = json["points"] = Json::array();
  for (const FittedPoint& point : model.points) {
    points.push_back({{"rate", point.rate},
                      {"measured_p50_ns", point.measured_p50_ns},
                      {"measured_p99_ns", point.measured_p99_ns},
                      {"modelled_p50_ns", point.modelled_p50_ns},
                      {"modelled_p99_ns", point.modelled_p99_ns}});
  }
  return json;
}

nlohmann::ordered_json ToJson(const SizeAnswer& answer, const SizeRequest& request) {
  Json json = {{"balancing", NameOf(answer.balancing)},
               {"rate", request.rate},
               {"callers", request.callers},
               {"replicas", answer.replicas},
               {"least", answer.least},
               {"greatest", answer.greatest},
               {"with_all", ToJson(answer.with_all)}};
  if (answer.with_one_lost.replicas > 0) json["with_one_lost"] = ToJson(answer.with_one_lost);
  Json& curve = json["curve"] = Json::array();
  for (const SizePoint& point : answer.curve) curve.push_back(ToJson(point));
  return json;
}

}  // namespace castor::load
