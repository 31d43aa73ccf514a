#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <map>
#include <utility>

#include "engine/kernel_table.h"
#include "server/metrics/families.h"
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

bool Encodes(Method method) {
  return method == Method::kEncode || method == Method::kEncodeStream ||
         method == Method::kRerank || method == Method::kModelInfer || method == Method::kTei;
}

// The codes that a call of ours can end with (proto/README.md). Any other counts as UNKNOWN, which
// stands first.
struct CodeName {
  grpc::StatusCode code;
  const char* name;
  bool before_kernels = false;  // no kernel runs then
};
constexpr auto kCodes = std::to_array<CodeName>({
    {grpc::StatusCode::UNKNOWN, "UNKNOWN"},
    {grpc::StatusCode::OK, "OK"},
    {grpc::StatusCode::CANCELLED, "CANCELLED"},
    {grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"},
    {grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"},
    {grpc::StatusCode::NOT_FOUND, "NOT_FOUND", true},
    {grpc::StatusCode::ALREADY_EXISTS, "ALREADY_EXISTS", true},
    {grpc::StatusCode::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
    {grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION", true},
    {grpc::StatusCode::UNIMPLEMENTED, "UNIMPLEMENTED", true},
    {grpc::StatusCode::INTERNAL, "INTERNAL"},
    {grpc::StatusCode::UNAVAILABLE, "UNAVAILABLE"},
    {grpc::StatusCode::UNAUTHENTICATED, "UNAUTHENTICATED", true},
    {grpc::StatusCode::PERMISSION_DENIED, "PERMISSION_DENIED", true},
});

size_t CodeIndex(grpc::StatusCode code) {
  for (size_t i = 0; i < kCodes.size(); ++i) {
    if (kCodes[i].code == code) return i;
  }
  return 0;
}

constexpr char kRequestDuration[] = "castor_request_duration_seconds";

// The label `kernel`: the engine's kernels, and "none" before them all.
constexpr size_t kKernelLabels = 1 + kKernelCount;

size_t KernelIndex(std::optional<KernelName> kernel) {
  return kernel.has_value() ? 1 + static_cast<size_t>(*kernel) : 0;
}

std::string KernelLabel(size_t index) {
  return index == 0 ? "none" : std::string(kKernels[index - 1].label);
}

// From 1 ms to 10 s in steps of about 1.6, with edges on the round figures that objectives use, and
// a few below for small requests.
const Histogram::BucketBoundaries& LatencyBounds() {
  static const Histogram::BucketBoundaries bounds = {
      0.0001, 0.00025, 0.0005, 0.001, 0.0016, 0.0025, 0.004, 0.006, 0.01, 0.016, 0.025, 0.04,
      0.06,   0.1,     0.16,   0.25,  0.4,    0.6,    1,     1.6,   2.5,  4,     6,     10};
  return bounds;
}

}  // namespace

// Every series of the registry, resolved once: looking one up by its labels locks and hashes.
struct Metrics::Children {
  struct PerMethod {
    // Null for kernels that the method or the engine does not have, and for codes with which no
    // kernel ends; "none" is always there.
    std::array<std::array<Counter*, kCodes.size()>, kKernelLabels> requests{};
    std::array<Histogram*, kKernelLabels> duration{};
    std::array<std::unique_ptr<Exemplars>, kKernelLabels> exemplars{};  // one for each of them
    Gauge* inflight = nullptr;
    Counter* received_bytes = nullptr;  // null for methods whose messages are small
    Counter* sent_bytes = nullptr;
    Counter* lost_answers = nullptr;  // the same
  };

  Children(prometheus::Registry& registry, const Engine& engine);

  // Of a series on the page.
  std::vector<std::optional<Exemplar>> ExemplarsOf(const prometheus::MetricFamily& family,
                                                   const prometheus::ClientMetric& series) const;

  std::array<PerMethod, kMethods> methods;
  // Of the latencies, by method and kernel.
  std::map<std::pair<std::string, std::string>, const Exemplars*> exemplars;
  Counter* overdue = nullptr;
  Gauge* connections = nullptr;
  std::array<Counter*, kRefusedConnections> refused_connections{};
  Counter* expelled = nullptr;
  Gauge* leaving_bytes = nullptr;
  Gauge* regions = nullptr;
  Counter* shared_memory_read = nullptr;
  Counter* shared_memory_written = nullptr;
  Gauge* ready = nullptr;
  Gauge* stalled = nullptr;
  Gauge* draining = nullptr;
};

Metrics::Children::Children(prometheus::Registry& registry, const Engine& engine) {
  const auto counters = [&](const char* name, const char* help) -> auto& {
    return Counters(registry, name, help);
  };
  const auto gauges = [&](const char* name, const char* help) -> auto& {
    return Gauges(registry, name, help);
  };
  auto& requests = counters("castor_requests_total",
                            "Calls answered, by method, kernel that ran and status code.");
  auto& duration = prometheus::BuildHistogram()
                       .Name(kRequestDuration)
                       .Help("From a call's arrival to its end, for the calls that compute.")
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
    auto add_kernel = [&](size_t kernel) {
      if (children.requests[kernel][0] != nullptr) return;
      const std::string label = KernelLabel(kernel);
      for (size_t c = 0; c < kCodes.size(); ++c) {
        if (kCodes[c].before_kernels && kernel != 0) continue;
        children.requests[kernel][c] =
            &requests.Add({{"method", name}, {"kernel", label}, {"code", kCodes[c].name}});
      }
      if (Computes(m)) {
        children.duration[kernel] =
            &duration.Add({{"method", name}, {"kernel", label}}, LatencyBounds());
        children.exemplars[kernel] = std::make_unique<Exemplars>(LatencyBounds());
        exemplars[{name, label}] = children.exemplars[kernel].get();
      }
    };
    add_kernel(0);
    const auto method = static_cast<Method>(m);
    for (const KernelInfo& kernel : info.kernels) {
      if (Attends(method)) add_kernel(KernelIndex(kernel.name));
    }
    for (const ModelInfo& model : info.models) {
      for (const KernelName kernel : model.kernels) {
        if (Encodes(method)) add_kernel(KernelIndex(kernel));
      }
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
  leaving_bytes = &gauges("castor_message_bytes",
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

std::vector<std::optional<Exemplar>> Metrics::Children::ExemplarsOf(
    const prometheus::MetricFamily& family, const prometheus::ClientMetric& series) const {
  if (family.name != kRequestDuration) return {};
  std::pair<std::string, std::string> labels;
  for (const auto& label : series.label) {
    if (label.name == "method") labels.first = label.value;
    if (label.name == "kernel") labels.second = label.value;
  }
  const auto found = exemplars.find(labels);
  if (found == exemplars.end()) return {};
  return found->second->Read();
}

Metrics::Metrics(const Engine& engine)
    : registry_(std::make_shared<prometheus::Registry>()),
      engine_(MakeEngineCollector(engine)),
      process_(MakeProcessCollector()),
      children_(std::make_unique<Children>(*registry_, engine)),
      access_(*registry_),
      traces_(*registry_) {}

Metrics::~Metrics() = default;

void Metrics::Started(Method method) {
  children_->methods[static_cast<size_t>(method)].inflight->Increment();
}

void Metrics::Finished(Method method, std::optional<KernelName> kernel, grpc::StatusCode code,
                       double seconds, const TraceContext* sampled) {
  Children::PerMethod& children = children_->methods[static_cast<size_t>(method)];
  size_t index = KernelIndex(kernel);
  if (children.requests[index][0] == nullptr) index = 0;
  const size_t row = CodeIndex(code);
  children.requests[kCodes[row].before_kernels ? 0 : index][row]->Increment();
  // NaN would poison the histogram's sum for ever.
  if (children.duration[index] != nullptr && seconds >= 0) {
    children.duration[index]->Observe(seconds);
    if (sampled != nullptr) children.exemplars[index]->Add(seconds, *sampled);
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

void Metrics::LeavingBytes(int64_t change) {
  children_->leaving_bytes->Increment(static_cast<double>(change));
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

absl::StatusOr<int> Metrics::StartEndpoint(const std::string& listen, MetricsAccess access) {
  auto endpoint = MetricsEndpoint::Start(
      listen, [this](PageFormat format) { return Page(format); }, std::move(access));
  if (!endpoint.ok()) return endpoint.status();
  endpoint_ = *std::move(endpoint);
  return endpoint_->port();
}

std::string Metrics::Page(PageFormat format) const {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& source :
       {std::static_pointer_cast<prometheus::Collectable>(registry_), engine_, process_}) {
    for (prometheus::MetricFamily& family : source->Collect()) {
      families.push_back(std::move(family));
    }
  }
  return WritePage(format, families, [this](const auto& family, const auto& series) {
    return children_->ExemplarsOf(family, series);
  });
}

}  // namespace castor::server
