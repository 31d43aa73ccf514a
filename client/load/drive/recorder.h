// Where a lane writes down what became of each request.
#pragma once

#include <grpcpp/support/status.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "client/load/base/clock.h"
#include "client/load/drive/request_log.h"
#include "client/load/measure/run_data.h"
#include "client/load/target/protocol.h"
#include "client/load/verify/references.h"

namespace castor::load {

// A request that was sent and has ended.
struct Ended {
  uint16_t cls = 0;
  uint16_t endpoint = 0;
  bool cancelled = false;  // as planned
  int64_t at_ns = 0;       // intended; negative while warming up
  int64_t sent_ns = 0, done_ns = 0;
  const Payload* payload = nullptr;
  const grpc::Status* status = nullptr;
  int64_t answer_bytes = 0;
  AnswerFacts facts{};  // of an OK answer
  Match match = Match::kNotAsked;
  double exact_error = -1;  // below 0: not known
};

// Thread-safe. One per lane, so that its lock is hardly ever waited for.
class Recorder {
 public:
  Recorder(const Workload& workload, size_t endpoints, RequestLog* log);

  void Record(const Ended& ended);
  void RecordDropped(uint16_t cls, int64_t at_ns);

  // By class, what has been recorded since the last call: for the live view.
  std::vector<Second> TakeRecent();

  // Adds what was measured to `run`, whose vectors have their sizes. Call once, when the lane has
  // ended.
  void MoveTo(RunData& run);

  // All calls by endpoint and outcome, those of the warm-up too.
  using Calls = std::vector<std::array<int64_t, kOutcomes>>;
  const Calls& calls() const { return calls_; }

 private:
  void RecordOk(const Ended& ended, int64_t latency, Cell& cell, Second& second);
  Second& SecondOf(uint16_t cls, int64_t at_ns);

  const Workload& workload_;
  RequestLog* const log_;  // null: none
  std::mutex mu_;
  std::vector<std::vector<Cell>> cells_;      // by class and endpoint
  std::vector<std::vector<Second>> seconds_;  // by second and class
  std::vector<Second> recent_;                // by class
  Calls calls_;
};

}  // namespace castor::load
