// One request through the engine, from its bytes to the bytes of its answer. Knows nothing of gRPC
// calls: a unary call (engine_call.h), a stream or another protocol is a shell around it.
//
//   shell's thread       Start: decode -> Engine::Submit (copies the tensors into staging memory)
//   completion thread    write the output to shared memory if asked -> encode -> Shell::Deliver
//   any thread           Cancel
//
// The shell is told the outcome exactly once: by Start if the request is refused, otherwise on a
// completion thread. The engine completes each request that it admits exactly once, cancelled or
// not.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/engine.h"
#include "google/rpc/status.pb.h"
#include "server/codec/regions.h"
#include "server/codec/response.h"
#include "server/metrics/metrics.h"
#include "server/services/cancellation.h"
#include "server/shared_memory.h"
#include "server/tracing/request_trace.h"

namespace castor::server {

// The parts that requests use; they outlive the requests.
struct RequestParts {
  Engine& engine;
  const SharedMemory& shared_memory;
  Metrics& metrics;
  DecodeBudget& decoding;
};

// A request's circumstances: everything but its message.
struct RequestOrigin {
  TimePoint received;  // the zero of its Timing
  TimePoint deadline;
  std::string tenant;             // Caller::tenant
  RequestTrace* trace = nullptr;  // none: it is not sampled; lives until the shell is told
  std::string queue_tenant = {};  // in the engine's fair queue; empty: as the tenant
  bool may_run_in_submit = false;
};

// For a request that was refused because its model is being loaded: has it wait for the model with
// its message, which counts as gathered by its tenant, and then calls
// then(status, &message, origin) on another thread. If it cannot wait, returns the error to refuse
// it with, and leaves the message.
template <typename Then>
absl::Status OnceLoaded(const RequestParts& parts, const absl::Status& refusal,
                        grpc::ByteBuffer* message, const RequestOrigin& origin, Then then) {
  struct Waiting {
    std::shared_ptr<void> held;
    grpc::ByteBuffer message;
    RequestOrigin origin;
  };
  const std::optional<std::string> model = LoadingModelOf(refusal);
  if (!model.has_value()) return refusal;
  auto held = parts.engine.Reserve(origin.tenant, static_cast<int64_t>(message->Length()));
  if (!held.ok()) return held.status();
  auto waiting = std::make_shared<Waiting>(*std::move(held), grpc::ByteBuffer(), origin);
  waiting->message.Swap(message);
  absl::Status awaited = parts.engine.AwaitModel(
      *model, origin.deadline, [waiting, then](const absl::Status& loaded) mutable {
        waiting->held.reset();  // from here on admission counts it
        then(loaded, &waiting->message, waiting->origin);
      });
  if (!awaited.ok()) waiting->message.Swap(message);
  return awaited;
}

// The owner of a request. Exactly one of the two is called, exactly once: by Start on its own
// thread, or on another thread, perhaps while Start is still running. Must not block. Only Deliver
// may throw, and only before it has sent anything; then Refuse follows.
class RequestShell {
 public:
  virtual void Deliver(grpc::ByteBuffer answer) = 0;
  virtual void Refuse(const absl::Status& error) = 0;

 protected:
  ~RequestShell() = default;
};

// Must live until every Cancel has returned and the shell has been told; and until Start has
// returned if it was called for the first time. The thread that calls Deliver or Refuse does not
// touch it afterwards, so the shell may destroy it there. The thread that destroys it must see what
// the others did.
//
// Protocol:
//   using Decoded, Result
//   absl::Status Decode(const grpc::ByteBuffer&, const DecodeScope&, Decoded*)
//   std::optional<KernelName> RequestedKernel(const Decoded&)
//   std::optional<OutputRange> TakeOutput(Decoded&)   may keep what else Encode needs
//   grpc::ByteBuffer Encode(std::string_view request_id, Result,
//                           const std::optional<OutputRange>&, double total_us)   or a StatusOr
//   absl::Status Refusal(absl::Status of the engine, bool submitted)   optional: the error with the
//                           protocol's own field names
//   grpc::ByteBuffer EncodeError(std::string_view request_id, google::rpc::Status)   optional: the
//                           answer to a message of a stream that has none
//   kKeepsResult   optional: Encode keeps the result, which owns its share of the budget, and the
//                           shell takes it from protocol()
//   headers()   optional: of the answer's initial metadata, pairs of strings
//   absl::Status Add(const grpc::ByteBuffer&, const std::string& holder)   optional: a part of a
//                           request that comes in several
// where Decoded has the members `request`, the engine's type, `regions` and `timeout`.
template <typename Protocol>
class EngineRequest {
 public:
  using Decoded = typename Protocol::Decoded;

  template <typename... Args>  // the protocol's
  EngineRequest(const RequestParts& parts, RequestShell& shell, const Args&... args)
      : parts_(parts), shell_(shell), protocol_(args...) {}
  EngineRequest(const EngineRequest&) = delete;
  EngineRequest& operator=(const EngineRequest&) = delete;

  // Decodes and submits. Empties the message as soon as the engine has its copy, since its bytes
  // count against gRPC's quota until then. Call Start once.
  //
  // A request whose model is being loaded starts again, on another thread, when it is there.
  void Start(grpc::ByteBuffer* message, const RequestOrigin& origin) {
    absl::Status started = Guarded([&] { return DecodeAndSubmit(*message, origin); });
    if (ReasonOf(started) == Reason::kModelLoading) {
      const auto again = [this](const absl::Status& loaded, grpc::ByteBuffer* kept,
                                const RequestOrigin& from) {
        loaded.ok() ? Start(kept, from) : shell_.Refuse(loaded);
      };
      started = Guarded([&] {
        RequestOrigin waiting = origin;
        waiting.deadline = deadline_.value_or(origin.deadline);
        return OnceLoaded(parts_, started, message, waiting, again);
      });
      if (started.ok()) return;
    }
    message->Clear();
    if (!started.ok()) shell_.Refuse(started);
  }

  // The same of a request that is decoded already.
  void Start(Decoded decoded, const RequestOrigin& origin) {
    const absl::Status started = Guarded([&] { return Submit(std::move(decoded), origin); });
    if (!started.ok()) shell_.Refuse(started);
  }

  // The answer is not needed any more. The shell is still told the outcome. Any thread, at any
  // time, even before Start.
  void Cancel() {
    if (const auto ticket = cancellation_->Cancel()) parts_.engine.Cancel(*ticket);
  }

  // Known once the shell is told the outcome, as far as the request could be decoded: its id, its
  // model, and the kernel that ran or that it asked for by name.
  const std::string& request_id() const { return request_id_; }
  const Subject& subject() const { return subject_; }

  // Once the shell is told; not there if answers have no place for errors.
  grpc::ByteBuffer EncodeError(google::rpc::Status error) const
    requires requires(const Protocol& p) { p.EncodeError("", google::rpc::Status()); }
  {
    return protocol_.EncodeError(request_id_, std::move(error));
  }

  Protocol& protocol() { return protocol_; }

  // Likewise, of an answer.
  const auto& headers() const
    requires requires(const Protocol& protocol) { protocol.headers(); }
  {
    return protocol_.headers();
  }

  // Before Start, of a request that comes in parts, which `holder` has the server hold.
  absl::Status Add(const grpc::ByteBuffer& part, const std::string& holder)
    requires requires(Protocol& protocol) { protocol.Add(part, holder); }
  {
    return protocol_.Add(part, holder);
  }

 private:
  using Result = typename Protocol::Result;

  absl::Status DecodeAndSubmit(const grpc::ByteBuffer& bytes, const RequestOrigin& origin) {
    if (origin.trace != nullptr) origin.trace->stage = Stage::kDecode;
    Decoded decoded;
    const DecodeScope scope{{parts_.shared_memory, origin.tenant}, parts_.decoding};
    absl::Status status = protocol_.Decode(bytes, scope, &decoded);
    if (status.ok()) return Submit(std::move(decoded), origin);
    // Without a name, the only model is meant; but not where the error says that none is.
    if (ReasonOf(status) != Reason::kModelNotFound) subject_.model = ModelOf(decoded.request);
    request_id_ = std::move(decoded.request.call.request_id);
    return status;
  }

  absl::Status Submit(Decoded decoded, const RequestOrigin& origin) {
    CallContext& call = decoded.request.call;
    request_id_ = call.request_id;
    subject_ = {protocol_.RequestedKernel(decoded), ModelOf(decoded.request)};
    output_ = protocol_.TakeOutput(decoded);
    shared_bytes_ = decoded.regions.input_bytes();
    received_ = origin.received;
    call.received = origin.received;
    call.deadline = decoded.timeout.has_value()
                        ? std::min(origin.deadline, origin.received + *decoded.timeout)
                        : origin.deadline;
    deadline_ = call.deadline;
    call.tenant = origin.queue_tenant.empty() ? origin.tenant : origin.queue_tenant;
    call.may_run_in_submit = origin.may_run_in_submit;
    traced_ = origin.trace;
    if (traced_ != nullptr) {
      traced_->stage = Stage::kEngine;  // of its answer, which may come before Submit returns
      traced_->submitted = std::chrono::steady_clock::now();
    }
    // `decoded` owns the slices that the request's views point into, and keeps the regions of its
    // files open. Submit has read both when it returns. The shell may be told before, and then
    // destroy this, unless its own thread is the one that is here.
    Engine& engine = parts_.engine;
    const std::shared_ptr<Cancellation> cancellation = cancellation_;
    const absl::StatusOr<Ticket> ticket =
        engine.Submit(std::move(decoded.request),
                      [this](absl::StatusOr<Result> result) { Complete(std::move(result)); });
    if (!ticket.ok()) {
      if (traced_ != nullptr) traced_->stage = Stage::kAdmission;
      return RenameFields(ticket.status(), false);
    }
    if (!cancellation->SetTicket(*ticket)) engine.Cancel(*ticket);
    return absl::OkStatus();
  }

  void Complete(absl::StatusOr<Result> result) noexcept {
    const absl::Status told = Guarded([&] { return Tell(std::move(result)); });
    if (!told.ok()) shell_.Refuse(told);
  }

  // Delivers the answer, or returns the error to refuse with.
  absl::Status Tell(absl::StatusOr<Result> result) {
    if (shared_bytes_ > 0) parts_.metrics.SharedMemoryRead(shared_bytes_);
    if (!result.ok()) return RenameFields(result.status(), true);
    if (Runs(*result)) subject_.kernel = castor::NameOf(result->report.kernel.kernel);
    if (traced_ != nullptr) {
      traced_->stage = Stage::kAnswer;
      traced_->completed = std::chrono::steady_clock::now();
      NoteReport(result->report, TokensOf(*result), traced_);
    }
    // The answer to a cancelled call is dropped; its memory goes back to the pool here.
    if (cancellation_->cancelled()) {
      return MakeError(Reason::kCancelled, "the caller went away");
    }
    if (output_.has_value()) {
      if (absl::Status s = WriteOutput(result->output); !s.ok()) return s;
    }
    const std::chrono::duration<double, std::micro> total =
        std::chrono::steady_clock::now() - received_;
    std::shared_ptr<AnswerShare> share;
    if constexpr (!requires { Protocol::kKeepsResult; }) share = std::move(result->share);
    absl::StatusOr<grpc::ByteBuffer> answer =
        protocol_.Encode(request_id_, *std::move(result), output_, total.count());
    if (answer.ok()) shell_.Deliver(Charged(*answer, std::move(share)));
    return answer.status();
  }

  template <typename Request>
  std::optional<size_t> ModelOf(const Request& request) const {
    if constexpr (requires { request.model; }) return parts_.metrics.ModelOf(request.model);
    return std::nullopt;
  }

  static bool Runs(const AttentionResult&) { return true; }
  static bool Runs(const EncodeResult& result) { return !result.tokenized.has_value(); }

  absl::Status RenameFields(const absl::Status& error, bool submitted) const {
    if constexpr (requires { protocol_.Refusal(error, submitted); }) {
      return protocol_.Refusal(error, submitted);
    }
    return error;
  }

  absl::Status WriteOutput(const TensorResult& output) {
    const FileRange& range = output_->file;
    if (static_cast<int64_t>(output.data.size()) != range.size) {
      return MakeError(Reason::kInternal, "the output differs in size from its range");
    }
    absl::Status status = WriteRange(range, output.data.bytes(), "output");
    if (status.ok()) parts_.metrics.SharedMemoryWritten(output.data.size());
    return status;
  }

  const RequestParts parts_;
  RequestShell& shell_;
  Protocol protocol_;
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();

  // Written by Start before the engine has the request, then only by Complete.
  std::string request_id_;
  TimePoint received_;
  std::optional<TimePoint> deadline_;  // with the request's own timeout
  Subject subject_;
  uint64_t shared_bytes_ = 0;  // of inputs in shared memory
  std::optional<OutputRange> output_;
  RequestTrace* traced_ = nullptr;
};

}  // namespace castor::server
