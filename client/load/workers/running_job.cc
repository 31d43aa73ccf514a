#include "client/load/workers/running_job.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "client/load/measure/run_json.h"

namespace castor::load {
namespace {

using std::chrono::nanoseconds;

constexpr size_t kPiece = 1 << 20;  // bytes of a result in one message
constexpr auto kLatestStart = std::chrono::hours(1);

int64_t UnixNow() {
  return nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void RunningJob::Run() {
  std::thread runner([this] { PrepareAndRun(); });
  wire::RunRequest request;
  while (stream_->Read(&request)) {
    if (request.has_start()) Take(request.start());
    if (request.has_stop()) RequestStop();
  }
  RequestStop();  // changes nothing when the result has been sent
  runner.join();
}

void RunningJob::PrepareAndRun() {
  try {
    const RunJob run = prepare_(job_);
    wire::RunResponse response;
    response.mutable_prepared()->set_version(version_);
    if (!Send(response)) return;
    const auto begin = AwaitStart();
    if (!begin) return Fail("stopped before it began");
    SendResult(run(
        *begin,
        [this](const Progress& progress) {
          wire::RunResponse message;
          *message.mutable_progress() = ToMessage(progress);
          (void)Send(message);
        },
        stop_));
  } catch (const std::exception& error) {
    Fail(error.what());
  }
}

std::optional<std::chrono::steady_clock::time_point> RunningJob::AwaitStart() {
  std::unique_lock<std::mutex> lock(mu_);
  started_.wait(lock, [this] { return begin_.has_value() || stop_.load(); });
  return begin_;
}

void RunningJob::RequestStop() {
  const std::lock_guard<std::mutex> lock(mu_);
  stop_ = true;
  started_.notify_all();
}

void RunningJob::Take(const wire::Start& start) {
  // The steady clock does not jump; read both as near together as can be.
  const auto steady = std::chrono::steady_clock::now();
  const nanoseconds ahead(start.unix_ns() - UnixNow());
  if (ahead < nanoseconds(0) || ahead > kLatestStart) {
    Fail("told to begin " + std::to_string(ahead.count() / 1'000'000) +
         " ms from now: the clocks differ, or the start came late");
    RequestStop();
    return;
  }
  const std::lock_guard<std::mutex> lock(mu_);
  begin_ = steady + ahead;
  started_.notify_all();
}

bool RunningJob::Send(const wire::RunResponse& response) {
  const std::lock_guard<std::mutex> lock(writing_);
  if (stream_->Write(response)) return true;
  RequestStop();
  return false;
}

void RunningJob::Fail(const std::string& message) {
  wire::RunResponse response;
  response.mutable_failure()->set_message(message);
  (void)Send(response);
}

void RunningJob::SendResult(const RunData& data) {
  const std::string json = ToJson(data).dump();
  for (size_t at = 0; at < json.size(); at += kPiece) {
    wire::RunResponse response;
    response.mutable_result()->set_json(json.substr(at, kPiece));
    response.mutable_result()->set_last(at + kPiece >= json.size());
    if (!Send(response)) return;
  }
}

}  // namespace castor::load
