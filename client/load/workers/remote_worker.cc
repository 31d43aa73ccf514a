#include "client/load/workers/remote_worker.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <stdexcept>
#include <utility>

#include "client/error.h"
#include "client/load/workers/keep_grpc.h"
#include "client/load/workers/limits.h"
#include "client/load/workers/token.h"

namespace castor::load {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

constexpr int kClockReadings = 32;
constexpr size_t kMaxResult = size_t{1} << 30;  // bytes

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target) {
  KeepGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessage);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

std::string TextOf(const grpc::Status& status) {
  return std::string(client::NameOf(status.error_code())) + ": " + status.error_message();
}

void AddToken(const std::string& token, grpc::ClientContext* context) {
  if (!token.empty()) context->AddMetadata("authorization", Bearer(token));
}

}  // namespace

RemoteWorker::RemoteWorker(WorkerAddress address, Board* board)
    : address_(std::move(address)),
      board_(board),
      channel_(MakeChannel(address_.target)),
      stub_(wire::LoadWorker::NewStub(channel_)) {}

RemoteWorker::~RemoteWorker() {
  if (!reader_.joinable()) return;
  Cancel();
  reader_.join();
}

void RemoteWorker::Connect(const CoordinatorOptions& options) {
  const auto deadline = system_clock::now() +
                        std::chrono::duration_cast<system_clock::duration>(options.connect_timeout);
  if (!channel_->WaitForConnected(deadline)) {
    throw std::runtime_error("cannot connect to worker '" + target() +
                             "': does castor-load worker run there, and listen on that address?");
  }
  ReadClock(deadline);
  if (clock_error_ > options.max_clock_error) {
    throw std::runtime_error("the clock of worker '" + target() + "' can only be read within " +
                             std::to_string(clock_error_.count() / 1000) + " us, and " +
                             std::to_string(options.max_clock_error.count() / 1000) +
                             " us are asked for: use hosts that are nearer, or allow more");
  }
}

void RemoteWorker::ReadClock(system_clock::time_point deadline) {
  clock_error_ = nanoseconds::max();
  for (int i = 0; i < kClockReadings; ++i) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    AddToken(address_.token, &context);
    wire::ReadClockResponse response;
    const auto before = system_clock::now();
    const auto sent = steady_clock::now();
    const grpc::Status status = stub_->ReadClock(&context, {}, &response);
    const nanoseconds trip = steady_clock::now() - sent;
    if (!status.ok()) {
      throw std::runtime_error("worker '" + target() + "': " + TextOf(status));
    }
    // It was read at some moment of the trip.
    if (trip / 2 >= clock_error_) continue;
    clock_error_ = trip / 2;
    clock_ahead_ =
        nanoseconds(response.unix_ns()) - nanoseconds(before.time_since_epoch()) - trip / 2;
  }
}

void RemoteWorker::Prepare(const Job& job, const std::string& version) {
  AddToken(address_.token, &context_);
  stream_ = stub_->Run(&context_);
  {
    const std::lock_guard<std::mutex> lock(writing_);
    may_write_ = true;
  }
  wire::RunRequest request;
  *request.mutable_prepare() = ToMessage(job, version);
  Write(request);
  reader_ = std::thread([this] { Read(); });
}

void RemoteWorker::Start(system_clock::time_point begin) {
  wire::RunRequest request;
  const nanoseconds at = nanoseconds(begin.time_since_epoch()) + clock_ahead_;
  request.mutable_start()->set_unix_ns(at.count());
  Write(request);
}

void RemoteWorker::Stop() {
  wire::RunRequest request;
  request.mutable_stop();
  Write(request);
}

void RemoteWorker::Write(const wire::RunRequest& request) {
  const std::lock_guard<std::mutex> lock(writing_);
  // If the stream is broken, its reader finds out.
  if (may_write_) may_write_ = stream_->Write(request);
}

void RemoteWorker::EndWriting() {
  const std::lock_guard<std::mutex> lock(writing_);
  if (std::exchange(may_write_, false)) stream_->WritesDone();
}

void RemoteWorker::Read() {
  wire::RunResponse response;
  while (stream_->Read(&response)) {
    bool over;
    {
      const std::lock_guard<std::mutex> lock(board_->mu);
      Take(response);
      over = state.complete || !state.failure.empty();
    }
    board_->changed.notify_all();
    if (over) EndWriting();
  }
  EndWriting();
  const grpc::Status status = stream_->Finish();
  {
    const std::lock_guard<std::mutex> lock(board_->mu);
    state.ended = true;
    if (!state.complete && state.failure.empty()) {
      state.failure = status.ok() ? "it ended without a result" : TextOf(status);
    }
  }
  board_->changed.notify_all();
}

void RemoteWorker::Take(wire::RunResponse& response) {
  state.heard = steady_clock::now();
  switch (response.step_case()) {
    case wire::RunResponse::kPrepared:
      state.prepared = true;
      break;
    case wire::RunResponse::kProgress:
      state.progress = FromMessage(response.progress());
      state.fresh = true;
      break;
    case wire::RunResponse::kResult:
      if (state.json.size() + response.result().json().size() > kMaxResult) {
        state.failure = "its result has more than 1 GiB";
        state.json.clear();
        Cancel();
        break;
      }
      state.json += response.result().json();
      state.complete = response.result().last();
      break;
    case wire::RunResponse::kFailure:
      if (state.failure.empty()) state.failure = response.failure().message();
      break;
    case wire::RunResponse::STEP_NOT_SET:
      break;
  }
}

}  // namespace castor::load
