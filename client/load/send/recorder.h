// Reads a lane's answers and writes down what became of its requests.
#pragma once

#include <grpcpp/support/status.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/load/results/run_data.h"
#include "client/load/send/answers.h"
#include "client/load/send/lane.h"

namespace castor::load {

// One JSON object a line for each request after the warm-up, dropped ones included: for whoever
// wants to do their own statistics. Thread-safe. The first line has the wall clock's time of the
// run's begin, from which all other times count.
class RequestLog {
 public:
  // Throws cli::UsageError when the file cannot be written.
  explicit RequestLog(const std::string& file);
  ~RequestLog() { (void)Close(); }
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  // Call first, once.
  void Begin(int64_t unix_ns);

  // Times in nanoseconds; of a dropped request, those of sending and ending are those at which it
  // was dropped.
  void Write(const std::string& cls, size_t endpoint, Outcome outcome, int64_t at_ns,
             int64_t sent_ns, int64_t done_ns);

  // Whether everything was written; call it at the end.
  bool Close();

 private:
  std::mutex mu_;
  std::FILE* file_ = nullptr;
  bool failed_ = false;
};

// How a request ended; `message` is the kind of its error, if it was one.
Outcome OutcomeOf(const EndedCall& call, std::chrono::nanoseconds deadline, std::string* message);

// One per lane, so that its lock is hardly ever waited for. Answers that take long to read are read
// on a thread of its own, so that none delays the next.
class Recorder : public Sink {
 public:
  // `references`: null, if nothing is verified; `log`: null, if there is none.
  Recorder(const Traffic& traffic, const References* references, RequestLog* log);
  ~Recorder() override { Finish(); }

  // Times count from it. Call before the lane starts.
  void SetBegin(Clock::time_point begin) { begin_ = begin; }

  void Ended(EndedCall call) override;
  void Dropped(const Planned& planned) override;

  // Waits until all is recorded. Call once the lane has ended.
  void Finish();

  // By class, what has been recorded since the last call: for the live view.
  std::vector<Second> TakeRecent();

  // Adds what was measured to `run`, whose vectors have their sizes. Call after Finish.
  void AddTo(RunData& run);

 private:
  bool IsSlowToRead(const EndedCall& call) const;
  void Work();
  void Record(const EndedCall& call);
  void RecordOk(const EndedCall& call, const AnswerFacts& facts, Cell& cell, Second& second);
  Second& SecondOf(uint16_t cls, int64_t at_ns);

  const Traffic& traffic_;
  const References* const references_;
  RequestLog* const log_;
  Clock::time_point begin_;

  std::mutex mu_;
  std::vector<std::vector<Cell>> cells_;      // by class and endpoint
  std::vector<std::vector<Second>> seconds_;  // by second and class
  std::vector<Second> recent_;                // by class
  std::vector<Outcomes> calls_;               // by endpoint, those of the warm-up, too

  std::mutex waiting_mu_;
  std::condition_variable changed_;
  std::deque<EndedCall> waiting_;
  size_t waiting_bytes_ = 0;  // of their answers
  bool finished_ = false;
  std::thread worker_;
};

}  // namespace castor::load
