#include "server/services/reflection_service.h"

#include <memory>
#include <utility>

#include "engine/base/error.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/errors.h"
#include "server/services/message.h"
#include "server/services/message_stream.h"

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

class ReflectionService::Stream final : public MessageStream {
 public:
  Stream(ReflectionService& service, const ServiceContext& services, IncomingCall incoming)
      : MessageStream(services, std::move(incoming), /*ordered=*/true, /*max_messages=*/1),
        service_(service) {}
  ~Stream() override {
    if (admitted_) --service_.streams_;
  }

 private:
  class Question final : public Message {
   public:
    explicit Question(Stream& stream) : stream_(stream) {}

    void Start(grpc::ByteBuffer* bytes) override {
      ReflectionAnswers::Request request;
      const absl::Status parsed = ParseMessage(*bytes, &request);
      bytes->Clear();
      if (!parsed.ok()) return Refuse(parsed);
      const ReflectionAnswers& answers = stream_.service_.answers_;
      stream_.Answer(*this, SerializeMessage(answers.Answer(request, &stream_.sent_)));
    }
    void Refuse(const absl::Status& error) override {
      stream_.Fail(*this, OrOutOfMemory([&] { return ToDetails(error, {}); }));
    }
    void Cancel() override {}  // it is answered at once

   private:
    Stream& stream_;
  };

  std::shared_ptr<Message> NewMessage() override { return std::make_shared<Question>(*this); }

  absl::Status Admit(const absl::Status& may) override {
    if (!may.ok()) return may;
    admitted_ = true;
    if (++service_.streams_ <= kStreams) return may;
    return QueueFull("too many reflection streams", kRetryStreamAfter);
  }

  grpc::Status Refusal(const absl::Status& error) override {
    return OrOutOfMemory([&] { return RefuseCall(error, {}, &call()); });
  }

  ReflectionService& service_;
  bool admitted_ = false;  // counted in the service
  ReflectionAnswers::Sent sent_;
};

ReflectionService::ReflectionService(std::vector<std::string> names, const ServiceContext& services)
    : MessageService(services.authorizer), answers_(WithReflection(std::move(names))) {
  const auto make = [this, &services](IncomingCall incoming) {
    const auto stream = std::make_shared<Stream>(*this, services, std::move(incoming));
    stream->Begin();
    return stream.get();
  };
  AddMethod("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", make);
  AddMethod("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", make);
}

}  // namespace castor::server
