// Reads answers and writes down what became of the calls. Those that take long to read are examined
// on a thread of their own, so that none delays a request.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "client/load/base/clock.h"
#include "client/load/drive/recorder.h"
#include "client/load/drive/sent_call.h"
#include "client/load/drive/traffic.h"

namespace castor::load {

class Examiner {
 public:
  // All of them must outlive this.
  Examiner(const Traffic& traffic, Recorder& recorder) : traffic_(traffic), recorder_(recorder) {}
  ~Examiner() { Finish(); }
  Examiner(const Examiner&) = delete;
  Examiner& operator=(const Examiner&) = delete;

  // Times are recorded as from `begin`. Call first, once.
  void Start(Clock::time_point begin);

  // A call that has ended. Takes it, or returns it when it is done with it. One thread.
  std::unique_ptr<SentCall> Examine(std::unique_ptr<SentCall> call);

  // Waits until all is recorded.
  void Finish();

  // Processor time of its thread. Call after Finish.
  std::chrono::nanoseconds thread_time() const { return thread_time_; }

 private:
  bool IsQuick(const SentCall& call) const;
  void Record(const SentCall& call);
  void Work();

  const Traffic& traffic_;
  Recorder& recorder_;
  Clock::time_point begin_;

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<SentCall>> waiting_;
  size_t waiting_bytes_ = 0;  // of their answers
  bool finished_ = false;

  std::chrono::nanoseconds thread_time_{0};
  std::thread thread_;
};

}  // namespace castor::load
