// Many requests over one call. The caller's source supplies requests while the window has room, and
// Next() returns their answers in the order of the requests:
//
//   auto stream = client.EncodeStream([&](castor::v1::EncodeRequest* request) {
//     ...  // false: no more
//   });
//   while (auto answer = stream->Next()) {
//     if (!answer->ok()) std::cerr << answer->error().ToString();
//   }
//
// The stream holds one window of requests, and answers that arrived before their turn.
//
// A request that fails alone gets its error as its answer, and the others go on. When the call
// fails, all requests in flight get its error, and later ones go over a new call. As in a unary
// call, UNAVAILABLE is tried again until the deadline of Next() if the server cannot have received
// the request, or if repeating it does no harm. A request refused for load (with `retry_after`) is
// sent again once another one of the window is answered; if it was sent while no other was in
// flight, the refusal is its answer.
//
// For one thread, which does the work inside Next().
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "client/error.h"

namespace castor::client {

class Client;

struct StreamOptions {
  size_t window = 16;  // requests
  // Each request's deadline, counted from its arrival at the server. Next() waits no longer than
  // this. 0: the client's.
  std::chrono::milliseconds deadline{0};
};

template <typename Request, typename Response>
class Stream {
 public:
  using Source = std::function<bool(Request*)>;
  // Begins a call whose steps are events of the queue.
  using Calls = grpc::ClientAsyncReaderWriter<Request, Response>;
  using Start = std::function<std::unique_ptr<Calls>(grpc::ClientContext*, grpc::CompletionQueue*)>;

  // Use Client's methods. `client` must outlive the stream.
  Stream(Client& client, Start start, Source source, StreamOptions options);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The answer to the next request; nullopt after the last. Sets each request's `request_id`, and
  // its `timeout_ms` where that is 0.
  std::optional<Result<Response>> Next();

 private:
  using Time = std::chrono::steady_clock::time_point;

  enum class State { kUnsent, kSent, kRefused, kAnswered };
  struct Slot {
    Request request;
    State state = State::kUnsent;
    bool alone = false;  // no other was in flight when it was sent
    std::optional<Result<Response>> answer = std::nullopt;
  };

  // One call, from its start until its status is known.
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<Calls> stream;
    bool started = false;
    bool writing = false;
    bool finishing = false;
    bool done_sending = false;  // all requests are answered, or the server drains
    int events = 0;             // that the queue still owes
    Response response;
    grpc::Status status;
  };

  void FillWindow();
  std::optional<Error> StartCall();
  void WriteNext();
  // Waits for an event of the call and handles it.
  void HandleEvent(Time until);
  void HandleResponse(Response response);
  void RequestStatus();
  // Decides which requests to send again over a new call, before `deadline`.
  void EndCall(Time deadline);
  void FailAll(const Error& error);
  bool InFlight() const;

  Client& client_;
  const Start start_;
  const Source source_;
  const StreamOptions options_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<Call> call_;
  std::deque<Slot> slots_;
  uint64_t first_ = 0;  // the number of the first slot
  bool exhausted_ = false;
  bool timed_out_ = false;
  int attempts_ = 0;  // calls made since the last answer
};

}  // namespace castor::client
