// A call with many requests and many answers, as gRPC runs it.
//
//   gRPC threads   Begin: the table's bounds, then whether the caller may -> StartRead
//                  OnReadDone -> Message::Start; then the next read if there is room
//                  OnWriteDone -> the next answer; the next read if it waited for room
//                  OnCancel, at any time after Begin began; OnDone, last
//   any thread     Answer or Fail, once for each message; End
//
// Room: messages being computed and answers not yet written have bounds, of number and of bytes.
// Beyond them nothing is read, and HTTP/2 makes the peer wait.
//
// Time: each answer must leave within the transfer time. With nothing to answer, the next message
// must come within that time. In between the messages' own deadlines count.
//
// Each reaction takes the lock first, and so sees what the others and Begin did.
//
// Reads begin only in gRPC's reactions, which keep the stream alive. Any thread may write or
// finish; after that, or after it has left the others an answer to write, it does not touch the
// stream again.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "google/rpc/status.pb.h"
#include "server/auth/caller_authorizer.h"
#include "server/services/call.h"
#include "server/transport/call_table.h"
#include "server/transport/message_call.h"

namespace castor::server {

class MessageStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                      public std::enable_shared_from_this<MessageStream> {
  struct Outgoing;

 public:
  // One request, until its answer has been written or dropped.
  class Message {
   public:
    virtual ~Message() = default;

    // Must lead to one Answer or Fail. May empty the bytes. May throw instead; then Refuse, which
    // must not, has to lead there.
    virtual void Start(grpc::ByteBuffer* bytes) = 0;
    virtual void Refuse(const absl::Status& error) = 0;

    // The answer is not needed any more. Any thread, at any time, also before Start.
    virtual void Cancel() = 0;

   private:
    friend class MessageStream;
    int64_t bytes_ = 0;          // of the request, then of the answer
    Outgoing* place_ = nullptr;  // of the answer in an ordered stream
  };

  // One stream takes at most this part of the engine's budgets of requests and bytes. A message of
  // any size is read when the stream has nothing else in flight.
  static constexpr int64_t kShareOfBudgets = 16;

  // `ordered`: answers come in the order of their messages, and not as they are ready.
  // `max_messages`: that are in flight; one at least.
  MessageStream(const ServiceContext& services, IncomingCall incoming, bool ordered,
                int64_t max_messages);
  ~MessageStream() override = default;

  // Reads the first message, or refuses the call. The last line of a handler.
  void Begin();

  // The server stops: reads no more, and finishes when everything is answered.
  void Drain();

  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;

 protected:
  // Called under the stream's lock. May throw, which ends the stream.
  virtual std::shared_ptr<Message> NewMessage() = 0;

  // Called by Begin, with what the table of calls and the authorizer say: whether the stream may
  // begin. Otherwise, or when a message cannot even be made, it ends with that Refusal, which must
  // not throw.
  virtual absl::Status Admit(const absl::Status& may) = 0;
  virtual grpc::Status Refusal(const absl::Status& error) = 0;

  // The stream may be gone when it returns.
  void Answer(const Message& message, grpc::ByteBuffer bytes) noexcept;

  // After the answers before it, the stream ends with this error. The same.
  void Fail(const Message& message, const google::rpc::Status& error) noexcept;

  const ServiceContext& services() const { return services_; }
  std::string_view name() const { return name_; }
  Call& call() { return call_; }
  const absl::StatusOr<Caller>& caller() const { return caller_; }

 private:
  struct Outgoing {
    std::shared_ptr<Message> message = nullptr;  // null: not answered yet
    grpc::ByteBuffer bytes = {};
    std::optional<grpc::Status> failure = std::nullopt;  // in place of the bytes
  };

  // A message being computed, and the place of its answer where that has none among the answers
  // yet: what has been computed can be answered without memory.
  struct Computed {
    std::shared_ptr<Message> message;
    std::list<Outgoing> place;
  };

  enum class Reading {
    kOurs,     // a reaction's, which starts a message or a read
    kGrpcs,    // a read waits
    kNoRoom,   // until an answer has been written
    kStopped,  // no more is read
  };

  // The work that is left for a thread once it has released the lock.
  struct Step {
    grpc::ByteBuffer* write = nullptr;
    bool finish = false;
    grpc::Status status;
    std::list<Outgoing> dropped;
    std::vector<std::shared_ptr<Message>> cancelled;
  };
  std::shared_ptr<Message> AddMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Answer(const Message& message, Outgoing answer) noexcept ABSL_LOCKS_EXCLUDED(mu_);
  Step NextStep() noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Empty if there is no memory for the list; the messages are then computed in vain.
  std::vector<std::shared_ptr<Message>> Computing() const noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Perform(Step step) ABSL_LOCKS_EXCLUDED(mu_);
  bool EndIdle(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadNext() ABSL_LOCKS_EXCLUDED(mu_);

  const ServiceContext& services_;
  const std::string_view name_;
  grpc::CallbackServerContext* const context_;
  GrpcCall call_;
  const absl::StatusOr<Caller> caller_;
  const bool ordered_;
  const size_t max_messages_;
  const int64_t max_bytes_;
  grpc::ByteBuffer message_;  // that gRPC reads

  Mutex mu_;
  Reading reading_ ABSL_GUARDED_BY(mu_) = Reading::kOurs;
  std::unordered_map<const Message*, Computed> computing_ ABSL_GUARDED_BY(mu_);
  std::list<Outgoing> answers_ ABSL_GUARDED_BY(mu_);
  std::optional<Outgoing> writing_ ABSL_GUARDED_BY(mu_);  // gRPC reads its bytes without the lock
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;                // of all three
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;         // by the caller, who has no more requests
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<grpc::Status> failure_ ABSL_GUARDED_BY(mu_);  // that a message ends the stream with
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  TimePoint limit_ ABSL_GUARDED_BY(mu_) = TimePoint::min();  // the last that the table was told

  CallTable::Row row_;  // last: the table's thread may call EndIdle from here on
  const absl::Status entered_;
};

// The streams that are open, which it owns, for the drain to end. Any thread may call anything.
class OpenStreams {
 public:
  void Add(std::shared_ptr<MessageStream> stream);
  void Remove(MessageStream* stream);
  // Ends all of them, and those that are added later.
  void End();

 private:
  Mutex mu_;
  std::unordered_map<MessageStream*, std::shared_ptr<MessageStream>> streams_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace castor::server
