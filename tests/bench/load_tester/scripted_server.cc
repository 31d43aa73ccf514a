#include "tests/bench/load_tester/scripted_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/prctl.h>
#include <time.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "castor/v1/server.pb.h"

namespace castor::bench {
namespace {

Method MethodOf(const std::string& path) {
  if (path == "/castor.v1.AttentionService/Attend") return Method::kAttend;
  if (path == "/castor.v1.EncoderService/Encode") return Method::kEncode;
  if (path == "/castor.v1.ServerService/GetServerInfo") return Method::kServerInfo;
  return Method::kUnknown;
}

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
  Method method = Method::kUnknown;
  bench::Answer answer = bench::Answer::kGood;
};

ScriptedServer::ScriptedServer(const ScriptedServerOptions& options)
    : options_(options), script_(options.script) {
  const int64_t unix_ns = Time(CLOCK_REALTIME);
  begin_unix_ns_ = options.begin_unix_ns != 0 ? options.begin_unix_ns : unix_ns;
  begin_monotonic_ns_ = Time(CLOCK_MONOTONIC) + begin_unix_ns_ - unix_ns;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(options.port),
                           grpc::InsecureServerCredentials(), &port_);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
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

ScriptedServerCounts ScriptedServer::counts() const {
  const std::lock_guard lock(mu_);
  ScriptedServerCounts counts = counts_;
  counts.late_p50 = late_.ValueAt(0.5);
  counts.late_p99 = late_.ValueAt(0.99);
  return counts;
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
      call->method = MethodOf(call->context.method());
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
  if (call->method == Method::kServerInfo || call->method == Method::kUnknown) return Answer(call);
  std::unique_lock lock(mu_);
  ++counts_.came;
  if (options_.discard) {
    ++counts_.good;
    lock.unlock();
    return Answer(call);
  }
  const Departure departure = script_.Next(now);
  if (departure.answer == bench::Answer::kNone) {
    ++counts_.silent;
    silent_.emplace_back(call);
    return;
  }
  call->answer = departure.answer;
  due_.push({departure.at_ns, static_cast<uint64_t>(counts_.came), call});
  if (due_.top().call == call) changed_.notify_all();
}

void ScriptedServer::Answer(Call* call) {
  const bool wrong = call->answer == bench::Answer::kWrong;
  if (call->answer == bench::Answer::kRefused || call->method == Method::kUnknown) {
    call->stream.Finish(call->method == Method::kUnknown
                            ? grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no such method")
                            : grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "by the script"),
                        call);
    return;
  }
  grpc::ByteBuffer bytes;
  if (call->method == Method::kServerInfo) {
    v1::ServerInfo info;
    info.set_version("scripted");
    info.set_metrics_address(options_.metrics_address);
    bytes = BytesOf(info);
  } else if (options_.discard) {  // at the least cost
    static grpc::ByteBuffer empty;
    static const grpc::ByteBuffer attend = AttendAnswer(empty, false, 0);
    static const grpc::ByteBuffer encode = EncodeAnswer(false, 0);
    bytes = call->method == Method::kAttend ? attend : encode;
  } else if (call->method == Method::kAttend) {
    bytes = AttendAnswer(call->request, wrong, options_.script.service_ns);
  } else {
    bytes = EncodeAnswer(wrong, options_.script.service_ns);
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
    late_.Record(late);
    ++(due.call->answer == bench::Answer::kGood    ? counts_.good
       : due.call->answer == bench::Answer::kWrong ? counts_.wrong
                                                   : counts_.refused);
    lock.unlock();
    Answer(due.call);
    lock.lock();
  }
}

}  // namespace castor::bench
