// A ModelInfer request on its way through the engine: reads which model it is for, then is an
// EngineRequest of attention or of an encoder. Counts what becomes of it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/oip/answer.h"
#include "server/services/engine_protocols.h"
#include "server/services/engine_request.h"

namespace castor::server::oip {

// EngineRequest's protocols. Requests are decoded before, since the message says which it is.
struct AttendProtocol : server::AttendProtocol {
  const Wanted* wanted = nullptr;

  explicit AttendProtocol(const Wanted& w) : wanted(&w) {}
  grpc::ByteBuffer Encode(std::string_view id, AttentionResult result,
                          const std::optional<OutputRange>& output, double total_us) const {
    wanted->model->counters.Answered(result.report, 1, total_us);
    return Answer(*wanted, id, std::move(result), output);
  }
};

struct EncodeProtocol : server::EncodeProtocol {
  const Wanted* wanted = nullptr;

  explicit EncodeProtocol(const Wanted& w) : wanted(&w) {}
  grpc::ByteBuffer Encode(std::string_view id, EncodeResult result,
                          const std::optional<OutputRange>&, double total_us) const {
    wanted->model->counters.Answered(result.report,
                                     static_cast<int64_t>(result.token_counts.size()), total_us);
    return Answer(*wanted, id, std::move(result));
  }
};

// Has EngineRequest's interface and threads.
class InferRequest final : private RequestShell {
 public:
  InferRequest(const RequestParts& parts, RequestShell& shell, const Catalogue& catalogue)
      : shared_memory_(parts.shared_memory),
        shell_(shell),
        catalogue_(catalogue),
        attend_(parts, *this, AttendProtocol(wanted_)),
        encode_(parts, *this, EncodeProtocol(wanted_)) {}

  void Start(grpc::ByteBuffer* bytes, RequestOrigin origin);

  void Cancel() {
    attend_.Cancel();
    encode_.Cancel();
  }

  const std::string& request_id() const { return request_id_; }
  std::optional<KernelName> kernel() const {
    return attend_.kernel().has_value() ? attend_.kernel() : encode_.kernel();
  }

 private:
  void Deliver(grpc::ByteBuffer answer) override { shell_.Deliver(std::move(answer)); }
  void Refuse(const absl::Status& error) override;

  // Refused before the engine had it.
  void Reject(grpc::ByteBuffer* bytes, const absl::Status& error);

  const SharedMemory& shared_memory_;
  RequestShell& shell_;
  const Catalogue& catalogue_;
  Wanted wanted_;
  EngineRequest<AttendProtocol> attend_;
  EngineRequest<EncodeProtocol> encode_;
  std::string request_id_;
  TimePoint received_;
};

}  // namespace castor::server::oip
