#include "client/load/drive/examiner.h"

#include <pthread.h>

#include <utility>

#include "client/load/base/thread_time.h"
#include "client/load/verify/references.h"

namespace castor::load {
namespace {

constexpr size_t kQuickBytes = 64 << 10;  // answers up to this are read in some microseconds
constexpr size_t kMaxWaiting = 256ULL
                               << 20;  // bytes; beyond, the lane itself reads, and sends late

}  // namespace

void Examiner::Start(Clock::time_point begin) {
  begin_ = begin;
  thread_ = std::thread([this] { Work(); });
}

bool Examiner::IsQuick(const SentCall& call) const {
  const bool verified = call.planned.verify && traffic_.references != nullptr && call.status.ok();
  return !verified && call.answer.size() <= kQuickBytes;
}

std::unique_ptr<SentCall> Examiner::Examine(std::unique_ptr<SentCall> call) {
  if (!IsQuick(*call)) {
    const std::lock_guard lock(mu_);
    if (waiting_bytes_ + call->answer.size() <= kMaxWaiting) {
      waiting_bytes_ += call->answer.size();
      waiting_.push_back(std::move(call));
      changed_.notify_one();
      return nullptr;
    }
  }
  Record(*call);
  return call;
}

void Examiner::Record(const SentCall& call) {
  const Planned& planned = call.planned;
  const Payload& payload = traffic_.payloads[planned.cls][planned.payload];
  Ended ended = {.cls = planned.cls,
                 .endpoint = call.endpoint,
                 .cancelled = planned.cancel_after_ns >= 0,
                 .at_ns = planned.at_ns,
                 .sent_ns = NanosBetween(begin_, call.sent),
                 .done_ns = NanosBetween(begin_, call.done),
                 .payload = &payload,
                 .status = &call.status};
  if (call.status.ok()) {
    ended.answer_bytes = static_cast<int64_t>(call.answer.size());
    ended.facts = traffic_.protocol->Read(payload, call.answer);
    if (planned.verify && traffic_.references != nullptr) {
      ended.match =
          traffic_.references->Compare(planned.cls, planned.payload, payload, call.answer);
      ended.exact_error = traffic_.references->ExactError(planned.cls, planned.payload);
    }
  }
  recorder_.Record(ended);
}

void Examiner::Work() {
  pthread_setname_np(pthread_self(), "examiner");
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return finished_ || !waiting_.empty(); });
    if (waiting_.empty()) break;
    const std::unique_ptr<SentCall> call = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= call->answer.size();
    lock.unlock();
    Record(*call);
    lock.lock();
  }
  thread_time_ = ThisThreadsTime();
}

void Examiner::Finish() {
  {
    const std::lock_guard lock(mu_);
    finished_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace castor::load
