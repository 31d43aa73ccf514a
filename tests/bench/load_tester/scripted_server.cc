#include "tests/bench/load_tester/scripted_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "castor/v1/server.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace castor::bench {
namespace {

constexpr std::string_view kAttend = "/castor.v1.AttentionService/Attend";
constexpr std::string_view kEncode = "/castor.v1.EncoderService/Encode";
constexpr std::string_view kServerInfo = "/castor.v1.ServerService/GetServerInfo";

int64_t Time(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

grpc::ByteBuffer BytesOf(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

// One element; of a wrong answer one bit of it differs, so that nothing but a comparison of all
// bytes finds it.
template <typename Response>
grpc::ByteBuffer OneElement(Response response, int dimensions, bool wrong, int64_t service_ns) {
  v1::Tensor& output = *response.mutable_output();
  if (output.raw().empty()) {
    const float one = 1;
    output.set_dtype(v1::FLOAT32);
    output.set_raw(&one, sizeof(one));
    for (int i = 0; i < dimensions; ++i) output.add_shape(1);
  }
  if (wrong) output.mutable_raw()->back() ^= 1;
  response.mutable_kernel()->set_name(v1::VANILLA);
  response.mutable_timing()->set_compute_us(static_cast<double>(service_ns) * 1e-3);
  response.mutable_timing()->set_total_us(static_cast<double>(service_ns) * 1e-3);
  return BytesOf(response);
}

grpc::ByteBuffer AttendAnswer(grpc::ByteBuffer& request, bool wrong, int64_t service_ns) {
  v1::AttendResponse response;
  grpc::Slice bytes;
  v1::AttendRequest parsed;
  if (request.Length() < 4096 && request.DumpToSingleSlice(&bytes).ok() &&
      parsed.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())) &&
      parsed.query_lengths_size() == 1 && parsed.query_lengths(0) == 1) {
    *response.mutable_output() = std::move(*parsed.mutable_value());
  }
  return OneElement(std::move(response), 3, wrong, service_ns);
}

grpc::ByteBuffer EncodeAnswer(bool wrong, int64_t service_ns) {
  v1::EncodeResponse response;
  response.add_lengths(1);
  response.add_token_counts(1);
  response.add_truncated(false);
  response.set_model("scripted");
  return OneElement(std::move(response), 2, wrong, service_ns);
}

}  // namespace

struct ScriptedServer::Call {
  grpc::GenericServerContext context{};
  grpc::GenericServerAsyncReaderWriter stream{&context};
  grpc::ByteBuffer request{};
  enum class State { kNew, kReading, kAnswered } state = State::kNew;
  bool refused = false, wrong = false;
};

ScriptedServer::ScriptedServer(const ScriptOptions& script)
    : script_(script), random_(script.seed) {
  begin_unix_ns_ = Time(CLOCK_REALTIME);
  begin_monotonic_ns_ = Time(CLOCK_MONOTONIC);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterAsyncGenericService(&service_);
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) throw std::runtime_error("the scripted server cannot listen");
  for (int i = 0; i < 64; ++i) AwaitCall();
  server_thread_ = std::thread([this] { Serve(); });
  due_thread_ = std::thread([this] { SendDue(); });
}

ScriptedServer::~ScriptedServer() {
  {
    const std::lock_guard lock(mu_);
    stop_ = true;
    changed_.notify_all();
  }
  due_thread_.join();
  server_->Shutdown(std::chrono::system_clock::now());
  queue_->Shutdown();
  server_thread_.join();
  for (; !due_.empty(); due_.pop()) delete due_.top().call;
}

int64_t ScriptedServer::Now() const { return Time(CLOCK_MONOTONIC) - begin_monotonic_ns_; }

int64_t ScriptedServer::came() const {
  const std::lock_guard lock(mu_);
  return came_;
}

void ScriptedServer::AwaitCall() {
  auto* const call = new Call;
  service_.RequestCall(&call->context, &call->stream, queue_.get(), queue_.get(), call);
}

void ScriptedServer::Serve() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    auto* const call = static_cast<Call*>(tag);
    if (!ok || call->state == Call::State::kAnswered) {
      delete call;
    } else if (call->state == Call::State::kNew) {
      AwaitCall();
      call->state = Call::State::kReading;
      call->stream.Read(&call->request, call);
    } else {
      OnRequest(call);
    }
  }
}

void ScriptedServer::OnRequest(Call* call) {
  const int64_t now = Now();
  call->state = Call::State::kAnswered;
  if (call->context.method() != kAttend && call->context.method() != kEncode) return Answer(call);
  const std::lock_guard lock(mu_);
  ++came_;
  const double drawn = static_cast<double>(random_() >> 11) * 0x1p-53;
  call->refused = drawn < script_.refuse_share;
  call->wrong = !call->refused && drawn < script_.refuse_share + script_.wrong_share;
  due_.push({DepartureOf(now, call->refused), static_cast<uint64_t>(came_), call});
  if (due_.top().call == call) changed_.notify_all();
}

int64_t ScriptedServer::DepartureOf(int64_t arrival_ns, bool refused) const {
  const int64_t ready_ns = arrival_ns + (refused ? 0 : script_.service_ns);
  if (script_.stall_ns == 0 || ready_ns < script_.stall_every_ns) return ready_ns;
  const int64_t stall = ready_ns / script_.stall_every_ns * script_.stall_every_ns;
  return std::max(ready_ns, stall + script_.stall_ns);
}

void ScriptedServer::Answer(Call* call) {
  const std::string& method = call->context.method();
  if (call->refused) {
    google::rpc::ErrorInfo info;
    info.set_reason("QUEUE_FULL");
    google::rpc::Status details;
    details.set_code(static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
    details.add_details()->PackFrom(info);
    return call->stream.Finish(
        {grpc::StatusCode::RESOURCE_EXHAUSTED, "by the script", details.SerializeAsString()}, call);
  }
  grpc::ByteBuffer bytes;
  if (method == kServerInfo) {
    v1::ServerInfo info;
    info.set_version("scripted");
    bytes = BytesOf(info);
  } else if (method != kAttend && method != kEncode) {
    return call->stream.Finish({grpc::StatusCode::UNIMPLEMENTED, "no such method"}, call);
  } else if (method == kAttend) {
    bytes = AttendAnswer(call->request, call->wrong, script_.service_ns);
  } else {
    bytes = EncodeAnswer(call->wrong, script_.service_ns);
  }
  call->stream.WriteAndFinish(bytes, grpc::WriteOptions(), grpc::Status::OK, call);
}

void ScriptedServer::SendDue() {
  prctl(PR_SET_TIMERSLACK, 1);
  std::unique_lock lock(mu_);
  while (!stop_) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Due due = due_.top();
    const int64_t late = Now() - due.at_ns;
    if (late < 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(-late));
      continue;
    }
    due_.pop();
    lock.unlock();
    Answer(due.call);
    lock.lock();
  }
}

}  // namespace castor::bench
