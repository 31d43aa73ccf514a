#include "server/lifecycle/health.h"

#include <utility>

#include "server/errors.h"

namespace castor::server {

using grpc::health::v1::HealthCheckResponse;

namespace {

constexpr std::string_view kModelPrefix = "model/";

}  // namespace

HealthState::HealthState(const std::vector<std::string>& names) {
  for (const std::string& name : names) statuses_[name] = HealthCheckResponse::NOT_SERVING;
  statuses_[std::string(kLiveness)] = HealthCheckResponse::SERVING;
}

void HealthState::SetServing(bool serving) { Set(&HealthState::serving_, serving); }

void HealthState::SetModels(const ModelInfos& models) {
  {
    MutexLock lock(mu_);
    for (const auto& [name, status] : statuses_) {
      if (name.starts_with(kModelPrefix)) unloaded_.insert(name);
    }
    for (const ModelInfo& model : models) {
      const std::string name = std::string(kModelPrefix) + model.name;
      unloaded_.erase(name);
      statuses_[name];
    }
    for (Watch* watch : watches_) {
      const auto found = statuses_.find(watch->name_);
      if (found != statuses_.end()) watch->status_ = &found->second;
    }
    UpdateStatuses();
  }
  NotifyWatches();
}

void HealthState::SetAlive(bool alive) { Set(&HealthState::alive_, alive); }

void HealthState::Shutdown() { Set(&HealthState::shut_down_, true); }

void HealthState::Set(bool HealthState::*state, bool value) {
  {
    MutexLock lock(mu_);
    this->*state = value;
    UpdateStatuses();
  }
  NotifyWatches();
}

std::optional<HealthState::Status> HealthState::StatusOf(const std::string& name) {
  MutexLock lock(mu_);
  const auto found = statuses_.find(name);
  if (found == statuses_.end()) return std::nullopt;
  return found->second;
}

std::map<std::string, HealthState::Status, std::less<>> HealthState::Statuses() {
  MutexLock lock(mu_);
  return statuses_;
}

template <typename Change>
void HealthState::Advance(Watch& watch, Change change) {
  Watch::Step step;
  {
    MutexLock lock(mu_);
    change();
    step = NextStep(watch);
  }
  if (step.any()) watch.Perform(std::move(step));
}

void HealthState::Begin(Watch& watch, const std::string& name) {
  Advance(watch, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto found = statuses_.find(name);
    if (found != statuses_.end()) watch.status_ = &found->second;
    watch.name_ = name;
    watches_.insert(&watch);
    watch.begun_ = true;
  });
}

void HealthState::Refuse(Watch& watch, grpc::Status error) {
  Advance(watch, [&] {
    watch.refusal_ = std::move(error);
    watch.begun_ = true;
  });
}

void HealthState::Written(Watch& watch, bool ok) {
  Advance(watch, [&] {
    watch.busy_ = false;
    if (!ok) watch.gone_ = true;
  });
}

void HealthState::Gone(Watch& watch) {
  Advance(watch, [&] { watch.gone_ = true; });
}

HealthState::Watch::Step HealthState::NextStep(Watch& watch) {
  Watch::Step step;
  if (watch.busy_ || !watch.begun_) return step;
  const Status now =
      watch.status_ == nullptr ? HealthCheckResponse::SERVICE_UNKNOWN : *watch.status_;
  if (watch.gone_) {
    step.finish = grpc::Status::CANCELLED;
  } else if (watch.refusal_.has_value()) {
    step.finish = std::move(watch.refusal_);
  } else if (now != watch.last_written_) {
    watch.last_written_ = now;
    step.write = now;
  } else if (shut_down_) {
    step.finish = OrOutOfMemory(
        [] { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is stopping"); });
  } else {
    return step;
  }
  watch.busy_ = true;
  if (step.finish.has_value()) watches_.erase(&watch);
  return step;
}

void HealthState::UpdateStatuses() {
  for (auto& [name, status] : statuses_) {
    const bool serves =
        !shut_down_ && alive_ && (serving_ || name == kLiveness) && !unloaded_.contains(name);
    status = serves ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
  }
}

void HealthState::NotifyWatches() {
  std::vector<std::pair<Watch*, Watch::Step>> steps;
  {
    MutexLock lock(mu_);
    const std::set<Watch*> watches = watches_;  // NextStep erases what it finishes
    for (Watch* watch : watches) {
      const Watch::Step step = NextStep(*watch);
      if (step.any()) steps.emplace_back(watch, step);
    }
  }
  for (auto& [watch, step] : steps) watch->Perform(std::move(step));
}

}  // namespace castor::server
