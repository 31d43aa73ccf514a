#include "server/health.h"

#include <memory>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "server/errors.h"
#include "server/services/handoff.h"
#include "server/services/message.h"

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

// One Watch stream. Its state is guarded by the service's lock; a step that the lock decided upon
// is taken after it was released, which is safe because at most one step is ever pending (`busy_`),
// and gRPC calls OnDone, which deletes the stream, only after the last one.
class HealthService::Watcher final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  Watcher(HealthService& service, std::string name) : service_(service), name_(std::move(name)) {}

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
    Step step;
    {
      MutexLock lock(service_.mu_);
      gone_ = true;
      step = service_.NextStep(*this);
    }
    Take(step);
  }

  void OnDone() override {
    handoff_.TakeOver();
    delete this;
  }

 private:
  friend class HealthService;

  HealthService& service_;
  const std::string name_;
  grpc::ByteBuffer buffer_;  // of the write that is under way
  Handoff handoff_;

  // Guarded by service_.mu_.
  bool busy_ = false;  // a step is pending; for ever once the stream is finished
  bool gone_ = false;
  std::optional<Status> last_written_;
};

HealthService::Step HealthService::NextStep(Watcher& watcher) {
  Step step;
  if (watcher.busy_) return step;
  const auto found = statuses_.find(watcher.name_);
  const Status now =
      found == statuses_.end() ? HealthCheckResponse::SERVICE_UNKNOWN : found->second;
  if (watcher.gone_) {
    step.finish = grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away");
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

HealthService::HealthService(const std::vector<std::string>& names) {
  for (const std::string& name : names) statuses_[name] = HealthCheckResponse::NOT_SERVING;
  statuses_[std::string(kLiveness)] = HealthCheckResponse::SERVING;
}

void HealthService::SetServing(bool serving) {
  {
    MutexLock lock(mu_);
    if (shut_down_) return;
    for (auto& [name, status] : statuses_) {
      if (name == kLiveness) continue;
      status = serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
    }
  }
  NotifyWatchers();
}

void HealthService::Shutdown() {
  {
    MutexLock lock(mu_);
    shut_down_ = true;
    for (auto& [name, status] : statuses_) status = HealthCheckResponse::NOT_SERVING;
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

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* bytes,
                                               grpc::ByteBuffer* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  HealthCheckRequest request;
  if (absl::Status parsed = ParseMessage(*bytes, &request); !parsed.ok()) {
    reactor->Finish(RefuseCall(parsed, "", context));
    return reactor;
  }
  std::optional<Status> status;
  {
    MutexLock lock(mu_);
    const auto found = statuses_.find(request.service());
    if (found != statuses_.end()) status = found->second;
  }
  if (status.has_value()) {
    *response = Encode(*status);
    reactor->Finish(grpc::Status::OK);
  } else {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such name"));
  }
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::Watch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  HealthCheckRequest request;
  if (absl::Status parsed = ParseMessage(*bytes, &request); !parsed.ok()) {
    class Refusal final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
      void OnDone() override { delete this; }
    };
    auto* refusal = new Refusal;
    refusal->Finish(RefuseCall(parsed, "", context));
    return refusal;
  }
  auto* watcher = new Watcher(*this, request.service());
  Step step;
  {
    MutexLock lock(mu_);
    watchers_.insert(watcher);
    step = NextStep(*watcher);
  }
  watcher->Take(step);
  return watcher;
}

}  // namespace castor::server
