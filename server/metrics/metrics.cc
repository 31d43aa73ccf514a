#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/kernel_table.h"
#include "server/metrics/samples.h"
#include "server/version.h"

namespace castor::server {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

constexpr std::array<const char*, kMethods> kMethodNames = {
    "attend",   "attend_stream", "encode",      "encode_stream", "rerank",
    "tokenize", "detokenize",    "model_infer", "tei",           "other"};

bool Computes(size_t method) { return static_cast<Method>(method) != Method::kOther; }

bool Attends(Method method) {
  return method == Method::kAttend || method == Method::kAttendStream ||
         method == Method::kModelInfer;
}

bool Tokenizes(Method method) {
  return method == Method::kTokenize || method == Method::kDetokenize;
}

bool Encodes(Method method) {
  return method == Method::kEncode || method == Method::kEncodeStream ||
         method == Method::kRerank || method == Method::kModelInfer || method == Method::kTei ||
         Tokenizes(method);
}

// The codes that a call of ours can end with (proto/README.md). Any other counts as UNKNOWN, which
// stands first.
struct CodeName {
  grpc::StatusCode code;
  const char* name;
  bool has_kernel = true;  // a kernel may be known then
  bool has_model = true;   // a model may
};
constexpr auto kCodes = std::to_array<CodeName>({
    {grpc::StatusCode::UNKNOWN, "UNKNOWN", false, false},
    {grpc::StatusCode::OK, "OK"},
    {grpc::StatusCode::CANCELLED, "CANCELLED"},
    {grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"},
    {grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"},
    {grpc::StatusCode::NOT_FOUND, "NOT_FOUND", false},
    {grpc::StatusCode::ALREADY_EXISTS, "ALREADY_EXISTS", false, false},
    {grpc::StatusCode::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
    {grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION", false},
    {grpc::StatusCode::UNIMPLEMENTED, "UNIMPLEMENTED", false},
    {grpc::StatusCode::INTERNAL, "INTERNAL"},
    {grpc::StatusCode::UNAVAILABLE, "UNAVAILABLE"},
    {grpc::StatusCode::UNAUTHENTICATED, "UNAUTHENTICATED", false, false},
    {grpc::StatusCode::PERMISSION_DENIED, "PERMISSION_DENIED", false, false},
});

size_t CodeIndex(grpc::StatusCode code) {
  for (size_t i = 0; i < kCodes.size(); ++i) {
    if (kCodes[i].code == code) return i;
  }
  return 0;
}

// From 1 ms to 10 s in steps of about 1.6, with edges on the round figures that objectives use, and
// a few below for small requests.
const Histogram::BucketBoundaries& LatencyBounds() {
  static const Histogram::BucketBoundaries bounds = {
      0.0001, 0.00025, 0.0005, 0.001, 0.0016, 0.0025, 0.004, 0.006, 0.01, 0.016, 0.025, 0.04,
      0.06,   0.1,     0.16,   0.25,  0.4,    0.6,    1,     1.6,   2.5,  4,     6,     10};
  return bounds;
}

// The page with a point in every bucket's bound: le="1.0", not le="1". Prometheus 3 stores bounds
// so, and rules and dashboards name them so; Prometheus 2 stores them as they are written. No other
// label's name ends in "le".
std::string WithFloatBounds(std::string_view page) {
  constexpr std::string_view kBound = "le=\"";
  std::string out;
  out.reserve(page.size() + page.size() / 32);
  for (size_t found = page.find(kBound); found != page.npos; found = page.find(kBound)) {
    const size_t begin = found + kBound.size();
    const size_t end = page.find('"', begin);
    const std::string_view bound = page.substr(begin, end - begin);
    out.append(page.substr(0, end));
    if (bound.find_first_not_of("0123456789") == bound.npos) out.append(".0");
    page.remove_prefix(end);
  }
  return out.append(page);
}

}  // namespace

// Every series of the registry, resolved once: looking one up by its labels locks and hashes.
struct Metrics::Children {
  // The series of a method and one kernel or model.
  struct Row {
    std::array<Counter*, kCodes.size()> requests{};  // null: counted in the method's first row
    Histogram* duration = nullptr;
  };
  struct PerMethod {
    Row unknown;  // kernel "none", or of methods that encode, model "other"
    std::array<Row, kKernelCount> kernels;
    std::vector<Row> models;  // empty, or as Metrics::models_
    Gauge* inflight = nullptr;
    Counter* received_bytes = nullptr;  // null for methods whose messages are small
    Counter* sent_bytes = nullptr;
    Counter* lost_answers = nullptr;  // the same
  };

  Children(prometheus::Registry& registry, const Engine& engine);

  void AddModel(size_t at, const std::string& name);
  void Count(size_t method, prometheus::Labels labels, bool CodeName::*has, Row& row);
  void Observe(size_t method, prometheus::Labels labels, Row& row);

  prometheus::Family<Counter>* requests = nullptr;
  prometheus::Family<Histogram>* durations = nullptr;
  std::array<PerMethod, kMethods> methods;
  Counter* overdue = nullptr;
  Gauge* connections = nullptr;
  std::array<Counter*, kRefusedConnections> refused_connections{};
  Counter* expelled = nullptr;
  Gauge* outgoing_bytes = nullptr;
  Gauge* regions = nullptr;
  Counter* shared_memory_read = nullptr;
  Counter* shared_memory_written = nullptr;
  Gauge* ready = nullptr;
  Gauge* stalled = nullptr;
  Gauge* draining = nullptr;
};

void Metrics::Children::Count(size_t method, prometheus::Labels labels, bool CodeName::*has,
                              Row& row) {
  labels["method"] = kMethodNames[method];
  for (size_t c = 0; c < kCodes.size(); ++c) {
    labels["code"] = kCodes[c].name;
    if (has == nullptr || kCodes[c].*has) row.requests[c] = &requests->Add(labels);
  }
}

void Metrics::Children::Observe(size_t method, prometheus::Labels labels, Row& row) {
  labels["method"] = kMethodNames[method];
  row.duration = &durations->Add(labels, LatencyBounds());
}

void Metrics::Children::AddModel(size_t at, const std::string& name) {
  for (size_t m = 0; m < methods.size(); ++m) {
    const auto method = static_cast<Method>(m);
    if (!Encodes(method)) continue;
    Row& row = methods[m].models[at];
    Count(m, {{"model", name}}, &CodeName::has_model, row);
    if (!Tokenizes(method)) Observe(m, {{"model", name}}, row);
  }
}

Metrics::Children::Children(prometheus::Registry& registry, const Engine& engine) {
  const auto counters = [&](const char* name, const char* help) -> auto& {
    return Counters(registry, name, help);
  };
  const auto gauges = [&](const char* name, const char* help) -> auto& {
    return Gauges(registry, name, help);
  };
  requests = &counters("castor_requests_total",
                       "Calls answered, by method, status code, and kernel or model.");
  durations = &prometheus::BuildHistogram()
                   .Name("castor_request_duration_seconds")
                   .Help("From the arrival to the end of calls that compute and are answered OK.")
                   .Register(registry);
  auto& inflight = gauges("castor_inflight_calls", "Calls in progress.");
  auto& received = counters("castor_received_bytes_total",
                            "Bytes of request messages, for the calls that compute.");
  auto& sent =
      counters("castor_sent_bytes_total", "Bytes of answer messages, for the calls that compute.");

  auto& lost =
      counters("castor_answers_lost_total",
               "Answers that were not delivered because the caller left or did not read them.");

  const EngineInfo info = engine.info();
  for (size_t m = 0; m < methods.size(); ++m) {
    PerMethod& children = methods[m];
    const std::string name = kMethodNames[m];
    const auto method = static_cast<Method>(m);
    if (Tokenizes(method)) Observe(m, {}, children.unknown);  // too quick to tell models apart
    if (Encodes(method)) {
      Count(m, {{"model", "other"}}, nullptr, children.unknown);
      children.models.resize(kMaxModels);
    } else {
      Count(m, {{"kernel", "none"}}, nullptr, children.unknown);
    }
    for (const KernelInfo& kernel : info.kernels) {
      Row& row = children.kernels[static_cast<size_t>(kernel.name)];
      if (!Attends(method)) break;
      const std::string label(castor::NameOf(kernel.name));
      Count(m, {{"kernel", label}}, &CodeName::has_kernel, row);
      Observe(m, {{"kernel", label}}, row);
    }
    children.inflight = &inflight.Add({{"method", name}});
    if (Computes(m)) {
      children.received_bytes = &received.Add({{"method", name}});
      children.sent_bytes = &sent.Add({{"method", name}});
      children.lost_answers = &lost.Add({{"method", name}});
    }
  }

  overdue = &counters("castor_calls_overdue_total",
                      "Calls ended because their message did not arrive, or their answer was not "
                      "taken, in time.")
                 .Add({});
  connections = &gauges("castor_connections", "Connections to the gRPC ports.").Add({});
  constexpr std::array<const char*, kRefusedConnections> kCauses = {
      "total", "host", "descriptors", "new", "silent", "no_call"};
  refused_connections =
      CountersBy("cause", kCauses,
                 counters("castor_connections_refused_total",
                          "Connections refused, or closed before their first call, by cause."));
  expelled = &counters("castor_connections_expelled_total",
                       "Connections closed for their peers' conduct: too many stream resets, "
                       "streams or headers beyond the limits.")
                  .Add({});
  outgoing_bytes = &gauges("castor_message_bytes",
                           "Answers held by gRPC until they are sent; tensors are staging memory.")
                        .Add({{"direction", "out"}});
  regions = &gauges("castor_shared_memory_regions", "Shared-memory regions registered.").Add({});
  shared_memory_read = &counters("castor_shared_memory_read_bytes_total",
                                 "Bytes of requests' tensors read from shared memory.")
                            .Add({});
  shared_memory_written = &counters("castor_shared_memory_written_bytes_total",
                                    "Bytes of answers' tensors written to shared memory.")
                               .Add({});
  ready = &gauges("castor_ready", "1 while the server takes requests.").Add({});
  stalled = &gauges("castor_engine_stalled",
                    "1 while the engine has work and has made no progress for --watchdog-timeout.")
                 .Add({});
  draining = &gauges("castor_draining", "1 while the server drains.").Add({});
  gauges("castor_build_info", "1; the labels have version and commit.")
      .Add({{"version", std::string(Version())},
            {"commit", std::string(GitCommit())},
            {"device", engine.info().device.name}})
      .Set(1);
  gauges("castor_device_info", "1; the labels have the device, and why it is not a GPU.")
      .Add({{"device", engine.info().device.name}, {"backend", engine.info().device.backend}})
      .Set(1);
}

Metrics::Metrics(const Engine& engine)
    : engine_(engine),
      registry_(std::make_shared<prometheus::Registry>()),
      engine_page_(MakeEngineCollector(engine)),
      process_(MakeProcessCollector()),
      children_(std::make_unique<Children>(*registry_, engine)),
      access_(*registry_),
      traces_(*registry_) {
  for (const ModelInfo& model : *engine.models()) {
    if (!model.outputs.empty() && model.alias_of.empty()) RowOf(model.name);
  }
}

Metrics::~Metrics() = default;

void Metrics::Started(Method method) {
  children_->methods[static_cast<size_t>(method)].inflight->Increment();
}

std::optional<size_t> Metrics::RowOf(const std::string& name) const {
  const auto find = [&]() -> std::optional<size_t> {
    const size_t listed = listed_.load(std::memory_order_acquire);
    const auto found = std::find(models_.begin(), models_.begin() + listed, name);
    if (found == models_.begin() + listed) return std::nullopt;
    return static_cast<size_t>(found - models_.begin());
  };
  if (const auto row = find()) return row;
  MutexLock lock(listing_mu_);
  if (const auto row = find()) return row;
  const size_t at = listed_.load(std::memory_order_relaxed);
  if (at == kMaxModels) return std::nullopt;
  children_->AddModel(at, name);
  models_[at] = name;
  listed_.store(at + 1, std::memory_order_release);
  return at;
}

std::optional<size_t> Metrics::ModelOf(std::string_view name) const {
  const std::shared_ptr<const ModelInfos> models = engine_.models();
  const ModelInfo* only = nullptr;
  int encoders = 0;
  for (const ModelInfo& model : *models) {
    if (model.outputs.empty()) continue;  // CAST layers
    if (model.name == name) return RowOf(model.alias_of.empty() ? model.name : model.alias_of);
    if (!model.alias_of.empty()) continue;
    only = &model;
    ++encoders;
  }
  return name.empty() && encoders == 1 ? RowOf(only->name) : std::nullopt;
}

void Metrics::Finished(Method method, const Subject& subject, grpc::StatusCode code,
                       double seconds) {
  Children::PerMethod& children = children_->methods[static_cast<size_t>(method)];
  const Children::Row* row = &children.unknown;
  if (subject.model.has_value() && !children.models.empty()) {
    row = &children.models[*subject.model];
  } else if (subject.kernel.has_value()) {
    row = &children.kernels[static_cast<size_t>(*subject.kernel)];
  }
  const size_t column = CodeIndex(code);
  if (row->requests[column] == nullptr) row = &children.unknown;
  row->requests[column]->Increment();
  // NaN would stay in the histogram's sum.
  if (row->duration == nullptr) row = &children.unknown;
  if (code == grpc::StatusCode::OK && row->duration != nullptr && seconds >= 0) {
    row->duration->Observe(seconds);
  }
}

void Metrics::Ended(Method method) {
  children_->methods[static_cast<size_t>(method)].inflight->Decrement();
}

void Metrics::AnswerLost(Method method) {
  Counter* counter = children_->methods[static_cast<size_t>(method)].lost_answers;
  if (counter != nullptr) counter->Increment();
}

void Metrics::CallOverdue() { children_->overdue->Increment(); }

void Metrics::ConnectionOpened() { children_->connections->Increment(); }

void Metrics::ConnectionClosed() { children_->connections->Decrement(); }

void Metrics::ConnectionRefused(RefusedConnection cause) {
  children_->refused_connections[static_cast<size_t>(cause)]->Increment();
}

void Metrics::ConnectionExpelled() { children_->expelled->Increment(); }

void Metrics::ReceivedBytes(Method method, size_t bytes) {
  Counter* counter = children_->methods[static_cast<size_t>(method)].received_bytes;
  if (counter != nullptr) counter->Increment(static_cast<double>(bytes));
}

void Metrics::SentBytes(Method method, size_t bytes) {
  Counter* counter = children_->methods[static_cast<size_t>(method)].sent_bytes;
  if (counter != nullptr) counter->Increment(static_cast<double>(bytes));
}

void Metrics::OutgoingBytes(int64_t change) {
  children_->outgoing_bytes->Increment(static_cast<double>(change));
}

void Metrics::RegionAdded() { children_->regions->Increment(); }

void Metrics::RegionRemoved() { children_->regions->Decrement(); }

void Metrics::SharedMemoryRead(uint64_t bytes) {
  children_->shared_memory_read->Increment(static_cast<double>(bytes));
}

void Metrics::SharedMemoryWritten(uint64_t bytes) {
  children_->shared_memory_written->Increment(static_cast<double>(bytes));
}

void Metrics::SetReady(bool ready) {
  MutexLock lock(mu_);
  ready_ = ready;
  children_->ready->Set(ready_ && !stalled_ ? 1 : 0);
}

void Metrics::SetStalled(bool stalled) {
  MutexLock lock(mu_);
  stalled_ = stalled;
  children_->stalled->Set(stalled ? 1 : 0);
  children_->ready->Set(ready_ && !stalled_ ? 1 : 0);
}

void Metrics::SetDraining(bool draining) { children_->draining->Set(draining ? 1 : 0); }

std::string Metrics::Page() const {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& source :
       {std::static_pointer_cast<prometheus::Collectable>(registry_), engine_page_, process_}) {
    for (prometheus::MetricFamily& family : source->Collect()) {
      if (!family.metric.empty()) families.push_back(std::move(family));
    }
  }
  return WithFloatBounds(prometheus::TextSerializer().Serialize(families));
}

}  // namespace castor::server
