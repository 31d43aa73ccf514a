#include "server/health.h"

#include <memory>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "server/errors.h"
#include "server/services/handoff.h"
#include "server/services/message.h"
#include "server/transport/message_call.h"

namespace castor::server {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

grpc::ByteBuffer Encode(HealthCheckResponse::ServingStatus status) {
  HealthCheckResponse response;
  response.set_status(status);
  return SerializeMessage(response);
}

}  // namespace

class HealthService::Check final : public MessageCall {
 public:
  Check(HealthService& service, Arrival arrival)
      : MessageCall(service.calls_, CallTable::Kind::kHealth, std::move(arrival)),
        service_(service) {}

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    HealthCheckRequest request;
    if (absl::Status parsed = ParseMessage(*message, &request); !parsed.ok()) {
      return OnRefusal(parsed);
    }
    const std::optional<Status> status = service_.StatusOf(request.service());
    if (!status.has_value()) {
      return SendError(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such name"));
    }
    Send(Encode(*status), TimePoint::max());
  }
  void OnRefusal(const absl::Status& error) override {
    SendError(RefuseCall(error, "", context()));
  }
  void OnLost() override { SendError(grpc::Status::CANCELLED); }

  HealthService& service_;
};

// One Watch stream. The service's lock guards its state. A step is decided under the lock and taken
// after it was released. That is safe because at most one step is ever pending (`busy_`), and gRPC
// calls OnDone, which deletes the stream, only after the last one.
class HealthService::Watcher final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Watcher(HealthService& service, const Arrival& arrival)
      : service_(service), context_(arrival.context) {
    absl::Status entered = service_.calls_.Enter(row_, CallTable::Kind::kHealth, context_);
    entered.Update(arrival.caller.status());
    if (entered.ok()) {
      handoff_.HandOver();
      StartRead(&message_);
    } else {
      busy_ = true;
      handoff_.HandOver();
      Finish(RefuseCall(entered, "", context_));
    }
  }

  void Take(const Step& step) {
    if (step.write.has_value()) {
      buffer_ = Encode(*step.write);
      handoff_.HandOver();
      StartWrite(&buffer_);
    } else if (step.finish.has_value()) {
      handoff_.HandOver();
      Finish(*step.finish);
    }
  }

  // The only message: what to watch.
  void OnReadDone(bool ok) override {
    handoff_.TakeOver();
    HealthCheckRequest request;
    const absl::Status parsed =
        ok ? ParseMessage(message_, &request)
           : MakeError(Reason::kMalformedMessage, "the call ended without a message");
    if (ok) service_.calls_.Received(row_, static_cast<int64_t>(message_.Length()));
    Step step;
    {
      MutexLock lock(service_.mu_);
      if (parsed.ok()) {
        name_ = request.service();
      } else {
        refusal_ = RefuseCall(parsed, "", context_);
      }
      read_ = true;
      service_.watchers_.insert(this);
      step = service_.NextStep(*this);
    }
    Take(step);
  }

  void OnWriteDone(bool ok) override {
    handoff_.TakeOver();
    Step step;
    {
      MutexLock lock(service_.mu_);
      busy_ = false;
      if (!ok) gone_ = true;
      step = service_.NextStep(*this);
    }
    Take(step);
  }

  void OnCancel() override {
    handoff_.TakeOver();
    service_.calls_.Cancelled(row_);
    Step step;
    {
      MutexLock lock(service_.mu_);
      gone_ = true;
      step = service_.NextStep(*this);
    }
    Take(step);
    handoff_.HandOver();
  }

  void OnDone() override {
    handoff_.TakeOver();
    service_.calls_.Leave(row_);
    delete this;
  }

 private:
  friend class HealthService;

  HealthService& service_;
  grpc::CallbackServerContext* const context_;
  CallTable::Row row_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer buffer_;  // of the write that is under way
  Handoff handoff_;

  // Guarded by service_.mu_.
  std::string name_;
  std::optional<grpc::Status> refusal_;  // of what was read
  bool read_ = false;                    // the read is over; the stream is not finished before
  bool busy_ = false;                    // a step is pending; for ever once the stream is finished
  bool gone_ = false;
  std::optional<Status> last_written_;
};

HealthService::Step HealthService::NextStep(Watcher& watcher) {
  Step step;
  if (watcher.busy_ || !watcher.read_) return step;
  const auto found = statuses_.find(watcher.name_);
  const Status now =
      found == statuses_.end() ? HealthCheckResponse::SERVICE_UNKNOWN : found->second;
  if (watcher.gone_) {
    step.finish = grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away");
  } else if (watcher.refusal_.has_value()) {
    step.finish = watcher.refusal_;
  } else if (now != watcher.last_written_) {
    watcher.last_written_ = now;
    step.write = now;
  } else if (shut_down_) {
    step.finish = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is stopping");
  } else {
    return step;
  }
  watcher.busy_ = true;
  if (step.finish.has_value()) watchers_.erase(&watcher);
  return step;
}

HealthService::HealthService(const std::vector<std::string>& names, CallTable& calls,
                             const Authorizer& authorizer)
    : MessageService(authorizer), calls_(calls) {
  for (const std::string& name : names) statuses_[name] = HealthCheckResponse::NOT_SERVING;
  statuses_[std::string(kLiveness)] = HealthCheckResponse::SERVING;
  AddMethod("/grpc.health.v1.Health/Check", [this](Arrival arrival) {
    auto* call = new Check(*this, std::move(arrival));
    call->Begin();
    return call;
  });
  AddMethod("/grpc.health.v1.Health/Watch",
            [this](const Arrival& arrival) { return new Watcher(*this, arrival); });
}

std::optional<HealthService::Status> HealthService::StatusOf(const std::string& name) {
  MutexLock lock(mu_);
  const auto found = statuses_.find(name);
  if (found == statuses_.end()) return std::nullopt;
  return found->second;
}

void HealthService::SetServing(bool serving) {
  {
    MutexLock lock(mu_);
    serving_ = serving;
    UpdateStatuses();
  }
  NotifyWatchers();
}

void HealthService::SetAlive(bool alive) {
  {
    MutexLock lock(mu_);
    alive_ = alive;
    UpdateStatuses();
  }
  NotifyWatchers();
}

void HealthService::UpdateStatuses() {
  for (auto& [name, status] : statuses_) {
    const bool serves = !shut_down_ && alive_ && (serving_ || name == kLiveness);
    status = serves ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
  }
}

void HealthService::Shutdown() {
  {
    MutexLock lock(mu_);
    shut_down_ = true;
    UpdateStatuses();
  }
  NotifyWatchers();
}

void HealthService::NotifyWatchers() {
  std::vector<std::pair<Watcher*, Step>> steps;
  {
    MutexLock lock(mu_);
    const std::set<Watcher*> watchers = watchers_;  // NextStep erases what it finishes
    for (Watcher* watcher : watchers) {
      const Step step = NextStep(*watcher);
      if (step.write.has_value() || step.finish.has_value()) steps.emplace_back(watcher, step);
    }
  }
  for (auto& [watcher, step] : steps) watcher->Take(step);
}

}  // namespace castor::server
