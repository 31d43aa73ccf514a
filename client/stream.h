// Many requests over one call. The caller's source makes them as there is room in the window, and
// Next() returns their answers, in the order of the requests:
//
//   auto stream = client.EncodeStream([&](castor::v1::EncodeRequest* request) {
//     ...  // false: no more
//   });
//   while (auto answer = stream->Next()) {
//     if (!answer->ok()) std::cerr << answer->error().ToString();
//   }
//
// A window of requests, with those answers that came before their turn, is all that it holds.
//
// The error of one request is its answer, and the rest go on. The error of the call is that of all
// requests in flight, and the next ones go over a new call. As in a unary call, UNAVAILABLE is
// tried again until the deadline of Next() if the server cannot have taken the request in, or if
// that does no harm. A request refused for load (with `retry_after`) is sent again when another one
// of the window has been answered; if there is none, that is its answer.
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
  // Begins a call, whose every step is an event of the queue.
  using Calls = grpc::ClientAsyncReaderWriter<Request, Response>;
  using Start = std::function<std::unique_ptr<Calls>(grpc::ClientContext*, grpc::CompletionQueue*)>;

  // By Client's methods. `client` must outlive the stream.
  Stream(Client& client, Start start, Source source, StreamOptions options);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The answer to the next request; nullopt when there are no more. Sets `request_id` of what it
  // sends, and `timeout_ms` where that is 0.
  std::optional<Result<Response>> Next();

 private:
  using Time = std::chrono::steady_clock::time_point;

  enum class State { kUnsent, kSent, kRefused, kAnswered };
  struct Slot {
    Request request;
    State state = State::kUnsent;
    std::optional<Result<Response>> answer = std::nullopt;
  };

  // One call, from its start until its status is known.
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<Calls> stream;
    bool started = false;
    bool writing = false;
    bool finishing = false;
    bool done_sending = false;  // nothing more is sent: all is answered, or the server drains
    int events = 0;             // to come
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
  // The call is over; another one may begin before `deadline`.
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
  int attempts_ = 0;  // to make calls, since the last answer
};

}  // namespace castor::client
