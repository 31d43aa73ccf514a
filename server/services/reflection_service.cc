#include "server/services/reflection_service.h"

#include <utility>

#include "engine/base/error.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/errors.h"
#include "server/services/call.h"
#include "server/services/handoff.h"
#include "server/services/message.h"

namespace castor::server {
namespace {

namespace v1alpha = grpc::reflection::v1alpha;

// The retry hint where there are too many streams. Most last for moments.
constexpr std::chrono::milliseconds kRetryStreamAfter{1000};

std::vector<std::string> WithReflection(std::vector<std::string> services) {
  // The messages of both versions are the same on the wire, so v1's serve both. This keeps
  // v1alpha's file in the program, for those who ask for it.
  static_cast<void>(v1alpha::ServerReflectionRequest::descriptor());
  services.push_back(grpc::reflection::v1::ServerReflection::service_full_name());
  services.push_back(v1alpha::ServerReflection::service_full_name());
  return services;
}

}  // namespace

// Who acts next on a stream: one of its own reactions, which gRPC calls in turn, or Shutdown, while
// a read waits for the caller. Whoever finishes the stream takes it out of the service first.
class ReflectionService::Stream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(ReflectionService& service, const Arrival& arrival)
      : service_(service), context_(arrival.context) {
    absl::Status entered = service_.calls_.Enter(row_, CallTable::Kind::kWork, context_);
    entered.Update(arrival.caller.status());
    if (entered.ok()) entered = service_.Add(*this);
    if (entered.ok()) {
      Listen();
    } else {
      Conclude(RefuseCall(entered, {}, context_));
    }
  }

  void OnReadDone(bool ok) override {
    handoff_.TakeOver();
    {
      MutexLock lock(service_.mu_);
      if (turn_ == Turn::kOver) return;
      turn_ = Turn::kOurs;
    }
    if (!ok) {
      if (context_->IsCancelled()) return End(grpc::Status::CANCELLED);
      service_.calls_.Received(row_);  // the caller has no more requests
      return End(grpc::Status::OK);
    }
    service_.calls_.Received(row_);
    ReflectionAnswers::Request request;
    const absl::Status parsed = ParseMessage(message_, &request);
    message_.Clear();
    if (!parsed.ok()) return End(RefuseCall(parsed, {}, context_));
    answer_ = SerializeMessage(service_.answers_.Answer(request, &sent_));
    service_.calls_.Answering(row_, TimePoint::max());
    handoff_.HandOver();
    StartWrite(&answer_);
  }

  void OnWriteDone(bool ok) override {
    handoff_.TakeOver();
    answer_.Clear();
    if (!ok) return End(grpc::Status::CANCELLED);
    service_.calls_.Expecting(row_);
    Listen();
  }

  void OnCancel() override {  // the read or write that is under way fails, and ends the stream
    handoff_.TakeOver();
    service_.calls_.Cancelled(row_);
    handoff_.HandOver();
  }

  void OnDone() override {
    handoff_.TakeOver();
    service_.calls_.Leave(row_);
    delete this;
  }

 private:
  friend class ReflectionService;

  enum class Turn {
    kOurs,      // a reaction's, or gRPC writes
    kStarting,  // a reaction's, which starts a read; it may be done before the reaction is
    kCallers,   // a read waits
    kOver,      // finished
  };

  static grpc::Status Stopping(grpc::CallbackServerContext* context) {
    return RefuseCall(CallRecord::Draining(), {}, context);
  }

  // Reads the next request, unless the service is shut down.
  void Listen() {
    bool stop = false;
    {
      MutexLock lock(service_.mu_);
      stop = service_.shut_down_;
      if (!stop) turn_ = Turn::kStarting;
    }
    if (stop) return End(Stopping(context_));
    handoff_.HandOver();
    StartRead(&message_);
    {
      MutexLock lock(service_.mu_);
      if (turn_ != Turn::kStarting) return;  // the request is there already
      stop = service_.shut_down_;
      turn_ = stop ? Turn::kOver : Turn::kCallers;
      if (stop) service_.streams_.erase(this);
    }
    if (stop) Conclude(Stopping(context_));
  }

  // Finishes the stream, in a reaction whose turn it is.
  void End(const grpc::Status& status) {
    {
      MutexLock lock(service_.mu_);
      turn_ = Turn::kOver;
      service_.streams_.erase(this);
    }
    Conclude(status);
  }

  // The stream is out of the service. gRPC calls OnDone only after this.
  void Conclude(const grpc::Status& status) {
    service_.calls_.Answering(row_, TimePoint::max());
    handoff_.HandOver();
    Finish(status);
  }

  ReflectionService& service_;
  grpc::CallbackServerContext* const context_;
  CallTable::Row row_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer answer_;  // that gRPC writes
  ReflectionAnswers::Sent sent_;
  Handoff handoff_;
  Turn turn_ = Turn::kOurs;  // guarded by service_.mu_
};

ReflectionService::ReflectionService(std::vector<std::string> services, CallTable& calls,
                                     const Authorizer& authorizer)
    : MessageService(authorizer), calls_(calls), answers_(WithReflection(std::move(services))) {
  const auto make = [this](const Arrival& arrival) { return new Stream(*this, arrival); };
  AddMethod("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", make);
  AddMethod("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", make);
}

absl::Status ReflectionService::Add(Stream& stream) {
  MutexLock lock(mu_);
  if (shut_down_) return CallRecord::Draining();
  if (streams_.size() >= kStreams) {
    return QueueFull("too many reflection streams", kRetryStreamAfter);
  }
  streams_.insert(&stream);
  return absl::OkStatus();
}

void ReflectionService::Shutdown() {
  std::vector<Stream*> waiting;
  {
    MutexLock lock(mu_);
    shut_down_ = true;
    for (Stream* stream : streams_) {
      if (stream->turn_ == Stream::Turn::kCallers) waiting.push_back(stream);
    }
    for (Stream* stream : waiting) {
      stream->turn_ = Stream::Turn::kOver;
      streams_.erase(stream);
    }
  }
  for (Stream* stream : waiting) stream->Conclude(Stream::Stopping(stream->context_));
}

}  // namespace castor::server
