// A client that never ends the program: it sends prebuilt bytes, and hands out the status beside
// the answer's unparsed bytes.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace castor::bench {

using Clock = std::chrono::steady_clock;

struct CallSettings {
  Clock::time_point deadline = Clock::time_point::max();  // max: none
  std::string tenant{};                                   // metadata castor-tenant; empty: none
};

struct Answer {
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::string reason;                                    // castor's, empty if gRPC itself refused
  std::optional<std::chrono::milliseconds> retry_after;  // what the server asks for
  Clock::time_point ended;
  grpc::ByteBuffer bytes;
};

// A call in flight, or one that has ended. Any thread may cancel it at any time.
class StartedCall {
 public:
  void Cancel() { context_.TryCancel(); }

 private:
  friend class Caller;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_, response_;
};

// Any number of threads may use a caller at a time. It must outlive its calls' answers.
class Caller {
 public:
  using Done = std::function<void(Answer)>;

  // Connects; the calls take the connections in turn. A server bounds the calls on one connection,
  // and those beyond would wait in the client. Ends the program if it cannot connect.
  explicit Caller(const std::string& address, int connections = 1);

  // `method` is a full path such as "/castor.v1.AttentionService/Attend". `done` is called once, on
  // a gRPC thread.
  std::shared_ptr<StartedCall> Start(const char* method, const grpc::ByteBuffer& request,
                                     const CallSettings& settings, Done done);

  Answer CallAndWait(const char* method, const grpc::ByteBuffer& request,
                     const CallSettings& settings = {});

 private:
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::atomic<size_t> next_ = 0;
};

}  // namespace castor::bench
