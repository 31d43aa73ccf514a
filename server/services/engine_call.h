// One call that goes through the engine: Attend or Encode.
//
//   gRPC thread          OnMessage: decode -> Engine::Submit (copies the tensors into staging
//   memory) completion thread    Complete: write the output to shared memory if asked -> encode ->
//   Send
//
// The call is answered exactly once: by OnMessage when the request is refused, else by Complete,
// which the engine calls exactly once, also for a request that was cancelled. OnMessage still runs
// while Complete may already have answered; gRPC keeps the call alive until OnMessage has returned.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "server/codec/regions.h"
#include "server/services/call.h"
#include "server/services/cancellation.h"
#include "server/transport/message_call.h"

namespace castor::server {

// Traits:
//   using Decoded, Result
//   static constexpr Method kMethod
//   static absl::Status Decode(const grpc::ByteBuffer&, const SharedMemory&, Decoded*)
//   static std::optional<KernelName> RequestedKernel(const Decoded&)
//   static std::optional<OutputRange> TakeOutput(Decoded&)
//   static grpc::ByteBuffer Encode(std::string_view request_id, Result,
//                                  const std::optional<OutputRange>&, double total_us)
template <typename Traits>
class EngineCall final : public MessageCall {
 public:
  EngineCall(const ServiceContext& services, Arrival arrival)
      : MessageCall(services.calls, CallTable::Kind::kWork, std::move(arrival)),
        services_(services),
        record_(services, Traits::kMethod) {}

 private:
  using Result = typename Traits::Result;

  // The message is emptied as soon as the engine has its copy: gRPC counts its bytes until then.
  void OnMessage(grpc::ByteBuffer* message) override {
    record_.Received(*message);
    const absl::Status submitted = record_.accepted() ? Submit(*message) : CallRecord::Draining();
    message->Clear();
    if (!submitted.ok()) Refuse(submitted);
    HandOver();
  }

  void OnRefusal(const absl::Status& error) override {
    Refuse(record_.accepted() ? error : CallRecord::Draining());
  }

  void OnLost() override { Refuse(CallRecord::CallerGone()); }

  void OnCallerGone() override {
    record_.Lost();
    if (const auto ticket = cancellation_.Cancel()) services_.engine.Cancel(*ticket);
  }

  absl::Status Submit(const grpc::ByteBuffer& bytes) {
    typename Traits::Decoded decoded;
    absl::Status status = Traits::Decode(bytes, services_.shared_memory, &decoded);
    request_id_ = decoded.request.call.request_id;
    if (!status.ok()) return status;
    kernel_ = Traits::RequestedKernel(decoded);
    output_ = Traits::TakeOutput(decoded);
    shared_bytes_ = decoded.regions.input_bytes();
    decoded.request.call.received = record_.received();
    deadline_ = record_.DeadlineOf(*context());
    decoded.request.call.deadline = deadline_;
    decoded.request.call.tenant = caller()->tenant;
    // `decoded` owns the slices that the request's views lie in, and holds the regions that its
    // files belong to; Submit has read them on return.
    const absl::StatusOr<Ticket> ticket = services_.engine.Submit(
        std::move(decoded.request),
        [this](absl::StatusOr<Result> result) { Complete(std::move(result)); });
    if (!ticket.ok()) return ticket.status();
    if (!cancellation_.SetTicket(*ticket)) services_.engine.Cancel(*ticket);
    return absl::OkStatus();
  }

  void Complete(absl::StatusOr<Result> result) {
    if (shared_bytes_ > 0) services_.metrics.SharedMemoryRead(shared_bytes_);
    if (!result.ok()) return Refuse(result.status());
    kernel_ = castor::NameOf(result->report.kernel.kernel);
    // Nobody reads the answer to a cancelled call; its memory goes back to the pool here.
    if (cancellation_.cancelled()) return Refuse(CallRecord::CallerGone());
    if (output_.has_value()) {
      const absl::Status written = WriteOutput(result->output);
      if (!written.ok()) return Refuse(written);
    }
    grpc::ByteBuffer answer =
        Traits::Encode(request_id_, *std::move(result), output_, record_.elapsed_us());
    record_.Answered(answer, kernel_, request_id_);
    Send(std::move(answer), deadline_);
  }

  absl::Status WriteOutput(const TensorResult& output) {
    const FileRange& range = output_->file;
    if (static_cast<int64_t>(output.data.size()) != range.size) {
      return MakeError(Reason::kInternal, "the output has another size than its range");
    }
    absl::Status status = WriteRange(range, output.data.bytes(), "output");
    if (status.ok()) services_.metrics.SharedMemoryWritten(output.data.size());
    return status;
  }

  void Refuse(const absl::Status& error) {
    SendError(record_.Refused(error, kernel_, request_id_, context()));
  }

  const ServiceContext& services_;
  CallRecord record_;
  Cancellation cancellation_;

  // Written by OnMessage before the engine has the request, then only by Complete.
  std::string request_id_;
  TimePoint deadline_;
  std::optional<KernelName> kernel_;
  uint64_t shared_bytes_ = 0;  // of inputs in shared memory
  std::optional<OutputRange> output_;
};

// What makes such calls, for MessageService::AddMethod.
template <typename Traits>
auto EngineMethod(const ServiceContext& services) {
  return [&services](Arrival arrival) {
    auto* call = new EngineCall<Traits>(services, std::move(arrival));
    call->Begin();
    return call;
  };
}

}  // namespace castor::server
