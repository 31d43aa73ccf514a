// One unary call that goes through the engine: Attend or Encode.
//
//   gRPC thread          Start: decode -> Engine::Submit (copies the tensors into staging memory)
//   completion thread    Complete: write the output to shared memory if asked -> encode -> Finish
//   gRPC threads         OnCancel, at any time after Start began; OnDone, last, deletes the call
//
// Finish is called exactly once: by Start when the request is refused, else by Complete, which the
// engine calls exactly once, also for a request that was cancelled. Start still runs while Complete
// may already have finished the call; gRPC keeps the call alive until Start has returned.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "server/codec/regions.h"
#include "server/services/call.h"
#include "server/services/cancellation.h"

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
class EngineCall final : public grpc::ServerUnaryReactor {
 public:
  // `context` and `response` are gRPC's and live as long as the call.
  EngineCall(const ServiceContext& services, grpc::CallbackServerContext* context,
             grpc::ByteBuffer* response)
      : services_(services),
        context_(context),
        response_(response),
        record_(services, Traits::kMethod) {}

  // `bytes` is gRPC's own message; it is emptied as soon as the engine has its copy, since gRPC
  // would hold it until the call is over.
  void Start(grpc::ByteBuffer* bytes) {
    record_.Received(*bytes);
    const absl::Status submitted = record_.accepted() ? Submit(*bytes) : CallRecord::Draining();
    bytes->Clear();
    if (!submitted.ok()) Refuse(submitted);
    record_.HandOver();
  }

  void OnCancel() override {
    if (const auto ticket = cancellation_.Cancel()) services_.engine.Cancel(*ticket);
  }

  void OnDone() override { delete this; }

 private:
  using Result = typename Traits::Result;

  absl::Status Submit(const grpc::ByteBuffer& bytes) {
    typename Traits::Decoded decoded;
    absl::Status status = Traits::Decode(bytes, services_.shared_memory, &decoded);
    request_id_ = decoded.request.call.request_id;
    if (!status.ok()) return status;
    kernel_ = Traits::RequestedKernel(decoded);
    output_ = Traits::TakeOutput(decoded);
    shared_bytes_ = decoded.regions.input_bytes();
    decoded.request.call.received = record_.received();
    decoded.request.call.deadline =
        DeadlineOf(context_->deadline(), services_.max_deadline, std::chrono::system_clock::now(),
                   std::chrono::steady_clock::now());
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
    if (cancellation_.cancelled()) {
      return Refuse(MakeError(Reason::kCancelled, "the caller went away"));
    }
    if (output_.has_value()) {
      const absl::Status written = WriteOutput(result->output);
      if (!written.ok()) return Refuse(written);
    }
    *response_ = Traits::Encode(request_id_, *std::move(result), output_, record_.elapsed_us());
    record_.Answered(*response_, kernel_, request_id_);
    Finish(grpc::Status::OK);
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
    Finish(record_.Refused(error, kernel_, request_id_, context_));
  }

  const ServiceContext& services_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  CallRecord record_;
  Cancellation cancellation_;

  // Written by Start before the engine has the request, then only by Complete.
  std::string request_id_;
  std::optional<KernelName> kernel_;
  uint64_t shared_bytes_ = 0;  // of inputs in shared memory
  std::optional<OutputRange> output_;
};

}  // namespace castor::server
