#include "tests/integration/server_fixture.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <numeric>
#include <sstream>
#include <thread>
#include <utility>

#include "server/errors.h"
#include "tests/integration/raw_client.h"
#include "tests/support/sanitizer.h"

namespace castor::testing {
namespace {

void FillTensor(int64_t tokens, v1::Tensor* tensor) {
  std::vector<float> values(static_cast<size_t>(tokens) * 2);
  std::iota(values.begin(), values.end(), 1.0F);
  tensor->set_dtype(v1::FLOAT32);
  for (const int64_t dimension : {tokens, int64_t{1}, int64_t{2}}) tensor->add_shape(dimension);
  tensor->set_raw(values.data(), values.size() * sizeof(float));
}

template <typename Stub, typename Request, typename Response>
using MethodOf = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

template <typename Stub, typename Request, typename Response>
grpc::Status Call(Stub& stub, MethodOf<Stub, Request, Response> method, const Request& request,
                  Response* response) {
  grpc::ClientContext context;
  return (stub.*method)(&context, request, response);
}

template <typename Stub, typename Request, typename Response>
grpc::Status EndOf(Stub& stub, MethodOf<Stub, Request, Response> method, const Request& request) {
  Response response;
  return Call(stub, method, request, &response);
}

template <typename Stub, typename Request, typename Response>
Response Answer(Stub& stub, MethodOf<Stub, Request, Response> method, const Request& request) {
  Response response;
  const grpc::Status status = Call(stub, method, request, &response);
  EXPECT_TRUE(status.ok()) << Outcome(status) << " " << status.error_message();
  return response;
}

}  // namespace

server::ServerOptions TestOptions() {
  server::ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.metrics_listen = "";  // its endpoint takes two seconds to stop
  options.max_message_bytes = 16 << 20;
  return options;
}

server::ServerOptions TestOptionsWithMetrics() {
  server::ServerOptions options = TestOptions();
  options.metrics_listen = "127.0.0.1:0";
  return options;
}

Details DetailsOf(const grpc::Status& status) {
  Details details;
  google::rpc::Status packed;
  if (!packed.ParseFromString(status.error_details())) return details;
  for (const google::protobuf::Any& any : packed.details()) {
    any.UnpackTo(&details.info);
    any.UnpackTo(&details.bad_request);
    any.UnpackTo(&details.request);
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&retry)) details.retry = retry;
  }
  return details;
}

std::string Outcome(const grpc::Status& status) {
  if (status.ok()) return "OK";
  const Details details = DetailsOf(status);
  std::string text = std::string(server::NameOf(status.error_code())) + " " + details.info.reason();
  for (const auto& violation : details.bad_request.field_violations()) {
    text += " " + violation.field();
  }
  return text;
}

v1::AttendRequest AttendOf(int64_t tokens, const std::string& request_id) {
  v1::AttendRequest request;
  request.set_request_id(request_id);
  FillTensor(tokens, request.mutable_query());
  FillTensor(tokens, request.mutable_key());
  FillTensor(tokens, request.mutable_value());
  return request;
}

v1::EncodeRequest EncodeOf(const std::vector<std::string>& texts) {
  v1::EncodeRequest request;
  request.set_request_id("encode");
  for (const std::string& text : texts) request.mutable_texts()->add_texts(text);
  return request;
}

std::vector<float> FloatsOf(const v1::Tensor& tensor) {
  std::vector<float> values(tensor.raw().size() / sizeof(float));
  std::memcpy(values.data(), tensor.raw().data(), values.size() * sizeof(float));
  return values;
}

void ServerTest::StartServer(server::ServerOptions options) {
  auto engine = std::make_unique<FakeEngine>();
  FakeEngine* fake = engine.get();
  StartServer(std::move(options), std::move(engine));
  engine_ = fake;
}

void ServerTest::StartServer(server::ServerOptions options, std::unique_ptr<Engine> engine,
                             std::unique_ptr<server::Authorizer> authorizer) {
  StopServer();
  auto started =
      server::Server::Start(std::move(options), std::move(engine), std::move(authorizer));
  ASSERT_TRUE(started.ok()) << started.status();
  server_ = *std::move(started);
  channel_ = NewChannel();
  attention_ = v1::AttentionService::NewStub(channel_);
  encoder_ = v1::EncoderService::NewStub(channel_);
}

void ServerTest::StartReal(std::vector<ModelSource> models, server::ServerOptions options,
                           EngineOptions engine_options) {
  engine_options.device = "cpu";
  engine_options.cpu_threads = 2;
  engine_options.models = std::move(models);
  engine_options.cost_model_budget = std::chrono::seconds(0);
  auto engine = CreateEngine(engine_options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  StartServer(std::move(options), *std::move(engine));
}

void ServerTest::ExpectAGoodAnswer() const { Attend(AttendOf(2)); }

v1::AttendResponse ServerTest::Attend(const v1::AttendRequest& request) const {
  return Answer(*attention_, &v1::AttentionService::Stub::Attend, request);
}
v1::EncodeResponse ServerTest::Encode(const v1::EncodeRequest& request) const {
  return Answer(*encoder_, &v1::EncoderService::Stub::Encode, request);
}
v1::RerankResponse ServerTest::Rerank(const v1::RerankRequest& request) const {
  return Answer(*encoder_, &v1::EncoderService::Stub::Rerank, request);
}

grpc::Status ServerTest::Try(const v1::AttendRequest& request) const {
  return EndOf(*attention_, &v1::AttentionService::Stub::Attend, request);
}
grpc::Status ServerTest::Try(const v1::EncodeRequest& request) const {
  return EndOf(*encoder_, &v1::EncoderService::Stub::Encode, request);
}
grpc::Status ServerTest::Try(const v1::RerankRequest& request) const {
  return EndOf(*encoder_, &v1::EncoderService::Stub::Rerank, request);
}

v1::Model ServerTest::DescribeModel(const std::string& model) const {
  v1::GetModelRequest request;
  request.set_name(model);
  return Answer(*v1::ModelService::NewStub(channel_), &v1::ModelService::Stub::GetModel, request);
}

void ServerTest::StopServer() {
  attention_.reset();
  encoder_.reset();
  channel_.reset();
  server_.reset();
  engine_ = nullptr;
}

std::shared_ptr<grpc::Channel> ServerTest::NewChannelTo(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // tests count calls
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials(), arguments);
}

grpc::Status ServerTest::CallRaw(const std::string& method, const std::string& bytes,
                                 std::string* answer) const {
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  grpc::Status status = done.get_future().get();
  std::vector<grpc::Slice> slices;
  if (answer != nullptr && status.ok() && response.Dump(&slices).ok()) {
    answer->clear();
    for (const grpc::Slice& piece : slices) {
      answer->append(reinterpret_cast<const char*>(piece.begin()), piece.size());
    }
  }
  return status;
}

bool ServerTest::Await(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + Patience(std::chrono::seconds(20));
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // leaves the processor to them
  }
  return true;
}

bool ServerTest::AwaitMetric(const std::string& series, double value) const {
  return Await([&] { return Metric(series) == value; });
}

bool ServerTest::AwaitNoCalls() const {
  return Await([this] { return server_->calls_in_flight() == 0; });
}

bool ServerTest::AwaitNoBytes() const {
  return AwaitNoCalls() && Await([this] {
           const EngineStats stats = server_->engine().stats();
           return stats.load.inflight_bytes == 0 && stats.memory.host_in_use_bytes == 0;
         });
}

std::string ServerTest::Scrape() const {
  RawClient client(server_->metrics_port());
  client.Send("GET /metrics HTTP/1.0\r\n\r\n");
  return client.ReadAll();
}

double ServerTest::Metric(const std::string& series) const {
  std::istringstream page(Scrape());
  for (std::string line; std::getline(page, line);) {
    if (line.compare(0, series.size() + 1, series + " ") == 0) {
      return std::stod(line.substr(series.size() + 1));
    }
  }
  return -1;
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace castor::testing
