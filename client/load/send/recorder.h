// Reads a lane's answers and records how its requests ended.
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
#include "client/load/send/lane.h"
#include "client/load/send/messages.h"

namespace castor::load {

// Writes a line of JSON for each request after the warm-up, dropped ones included, for statistics
// by other tools. The first line has the Unix time of the run's begin, from which other times
// count. Thread-safe.
class RequestLog {
 public:
  // Throws cli::UsageError when the file cannot be written.
  explicit RequestLog(const std::string& file);
  ~RequestLog() { (void)Close(); }
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  // Call it once, before Write.
  void Begin(int64_t unix_ns);

  // Times are in nanoseconds. A dropped request was sent and done when it was dropped.
  void Write(const std::string& cls, size_t endpoint, Outcome outcome, int64_t at_ns,
             int64_t sent_ns, int64_t done_ns);

  // Call it at the end. Returns whether everything was written.
  bool Close();

 private:
  std::mutex mu_;
  std::FILE* file_ = nullptr;
  bool failed_ = false;
};

// How a request ended; sets `message` to the kind of an error.
Outcome OutcomeOf(const EndedCall& call, std::chrono::nanoseconds deadline, std::string* message);

// Each lane has a recorder, so its lock is rarely contended. A thread of its own reads long
// answers, so that they do not delay the next.
class Recorder : public Sink {
 public:
  // `references` is null if nothing is verified; `log` may be null.
  Recorder(const Traffic& traffic, const References* references, RequestLog* log);
  ~Recorder() override { Finish(); }

  // Times count from `begin`. Call it before the lane starts.
  void SetBegin(Clock::time_point begin) { begin_ = begin; }

  void Ended(EndedCall call) override;
  void Dropped(const Planned& planned) override;

  // Waits until everything is recorded. Call it after the lane has ended.
  void Finish();

  // The records since the last call, by class, for the live view.
  std::vector<Second> TakeRecent();

  // Adds the measurements to `run`, whose vectors have their sizes. Call it after Finish.
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
  std::vector<Outcomes> calls_;               // by endpoint, including the warm-up

  std::mutex waiting_mu_;
  std::condition_variable changed_;
  std::deque<EndedCall> waiting_;
  size_t waiting_bytes_ = 0;  // of their answers
  bool finished_ = false;
  std::thread worker_;
};

}  // namespace castor::load
