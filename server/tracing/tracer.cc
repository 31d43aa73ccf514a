#include "server/tracing/tracer.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/auth/live_files.h"
#include "server/errors.h"
#include "server/logging.h"
#include "server/tracing/trace_context.h"
#include "server/version.h"

namespace castor::server {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

absl::Status Tracer::Start(const TraceOptions& options) {
  if (!options.ca.empty()) {
    absl::StatusOr<std::string> authorities = ReadSmallFile(options.ca);
    if (!authorities.ok()) {
      return absl::FailedPreconditionError("OTEL_EXPORTER_OTLP_CERTIFICATE: " +
                                           std::string(authorities.status().message()));
    }
    authorities_ = *std::move(authorities);
  }
  options_ = options;
  sampler_.emplace(options.sample);
  thread_ = std::thread([this, about = AttributesOfProcess()] { Run(about); });
  on_.store(true, std::memory_order_release);
  LogInfo("tracing", {{"endpoint", options.endpoint},
                      {"security", options.tls ? "TLS" : "plaintext"},
                      {"sample", options.sample}});
  return absl::OkStatus();
}

void Tracer::Stop(TimePoint deadline) {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    end_ = deadline;
    changed_.NotifyOne();
  }
  thread_.join();
}

std::unique_ptr<RequestTrace> Tracer::Begin(const std::optional<TraceContext>& parent,
                                            std::string_view name) const {
  if (!on()) return nullptr;
  const TraceId trace = parent.has_value() ? parent->trace : NewTraceId();
  if (!sampler_->Takes(parent, trace)) return nullptr;
  auto begun = std::make_unique<RequestTrace>();
  begun->own = {.trace = trace, .span = NewSpanId(), .sampled = true};
  if (parent.has_value()) begun->parent = parent->span;
  begun->name = name;
  return begun;
}

void Tracer::End(std::unique_ptr<RequestTrace> trace) {
  {
    MutexLock lock(mu_);
    if (end_ == TimePoint::max() && waiting_.size() < options_.max_queued_requests) {
      waiting_.push_back(std::move(trace));
      // To wake the thread costs a system call.
      if (waiting_.size() == options_.max_batch_requests) changed_.NotifyOne();
      return;
    }
  }
  metrics_.Dropped(DroppedSpans::kQueueFull, SpanCount(*trace));
}

bool Tracer::TakeRequests(Requests* taken) {
  taken->clear();
  const TimePoint until = steady_clock::now() + options_.export_interval;
  MutexLock lock(mu_);
  while (waiting_.size() < options_.max_batch_requests && end_ == TimePoint::max() &&
         changed_.WaitUntil(mu_, until)) {
  }
  const auto end = waiting_.begin() + std::min(waiting_.size(), options_.max_batch_requests);
  std::move(waiting_.begin(), end, std::back_inserter(*taken));
  waiting_.erase(waiting_.begin(), end);
  return end_ == TimePoint::max() || !taken->empty();
}

void Tracer::Run(const Attributes& about) {
  pthread_setname_np(pthread_self(), "tracer");
  otlp::ExportTraceServiceRequest message;  // kept: its spans are filled again
  auto& traces = *message.add_resource_spans();
  for (const auto& [key, value] : about) {
    auto& attribute = *traces.mutable_resource()->add_attributes();
    attribute.set_key(key);
    attribute.mutable_value()->set_string_value(value);
  }
  ScopeSpans& spans = *traces.add_scope_spans();
  spans.mutable_scope()->set_name("castor");
  spans.mutable_scope()->set_version(std::string(Version()));
  Requests requests;
  for (bool open = true; open;) {
    open = TakeRequests(&requests);
    const WallClock clock = WallClock::Now();
    for (const auto& request : requests) AddRequest(*request, clock, &spans);
    if (spans.spans_size() > 0) Export(message, spans.spans_size());
    spans.clear_spans();
  }
}

void Tracer::Export(const otlp::ExportTraceServiceRequest& request, int64_t spans) {
  const TimePoint give_up = steady_clock::now() + options_.give_up_after;
  const auto end = [this] {
    MutexLock lock(mu_);
    return end_;
  };
  nanoseconds backoff = options_.first_backoff;
  for (;;) {
    const TimePoint until = std::min(give_up, end());
    const TimePoint now = steady_clock::now();
    if (now >= until) break;
    const ExportResult result = Call(request, std::min(until, now + options_.export_timeout));
    if (result.kind == ExportResult::Kind::kTaken) {
      const int64_t rejected = std::min(result.rejected, spans);
      metrics_.Exported(spans - rejected);
      metrics_.Dropped(DroppedSpans::kRejected, rejected);
      metrics_.Export(rejected == 0 ? TraceExport::kTaken : TraceExport::kPartlyTaken);
      if (std::exchange(failing_, false)) {
        LogInfo("traces are exported again", {{"endpoint", options_.endpoint}});
      }
      return;
    }
    if (!std::exchange(failing_, true)) {
      LogWarning("cannot export traces; spans that do not fit into the queue are dropped",
                 {{"endpoint", options_.endpoint}, {"error", result.message}});
    }
    if (result.kind == ExportResult::Kind::kRefused) {
      metrics_.Export(TraceExport::kRefused);
      return metrics_.Dropped(DroppedSpans::kRefused, spans);
    }
    metrics_.Export(TraceExport::kFailed);
    // Servers that lost a collector together do not return together.
    const auto pause =
        std::chrono::duration_cast<nanoseconds>(backoff * absl::Uniform(absl::BitGen(), 0.8, 1.2));
    if (!Pause(pause + result.delay.value_or(std::chrono::milliseconds(0)), until)) break;
    backoff = std::min<nanoseconds>(2 * backoff, options_.max_backoff);
  }
  const bool ending = end() != TimePoint::max();
  metrics_.Dropped(ending ? DroppedSpans::kShutdown : DroppedSpans::kFailed, spans);
}

ExportResult Tracer::Call(const otlp::ExportTraceServiceRequest& request, TimePoint until) {
  if (collector_ == nullptr) collector_ = ConnectToCollector(options_, authorities_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + (until - steady_clock::now()));
  otlp::ExportTraceServiceResponse answer;
  std::optional<grpc::Status> status;
  collector_->async()->Export(&context, &request, &answer, [&](grpc::Status done) {
    MutexLock lock(mu_);
    status = std::move(done);
    changed_.NotifyOne();
  });
  {
    MutexLock lock(mu_);
    while (!status.has_value() &&
           changed_.WaitUntil(mu_, std::min(until + options_.export_timeout, end_))) {
    }
    if (!status.has_value()) context.TryCancel();  // at the end; gRPC itself heeds `until`
    while (!status.has_value()) changed_.Wait(mu_);
  }
  // The connection may lead nowhere without an error.
  if (status->error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) collector_.reset();
  return ReadExportResult(*status, answer);
}

bool Tracer::Pause(nanoseconds time, TimePoint until) {
  const TimePoint over = steady_clock::now() + time;
  if (over >= until) return false;
  MutexLock lock(mu_);
  while (over < end_ && changed_.WaitUntil(mu_, over)) {
  }
  return over < end_;
}

namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxShownBytes = 256;
constexpr int64_t kMaxDelaySeconds = 3600;
constexpr size_t kMaxAttributesText = 8192;

// RetryInfo's delay.
std::optional<milliseconds> DelayOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& detail : details.details()) {
    if (!detail.UnpackTo(&retry)) continue;
    const int64_t seconds = std::clamp<int64_t>(retry.retry_delay().seconds(), 0, kMaxDelaySeconds);
    return milliseconds(1000 * seconds + std::max(retry.retry_delay().nanos(), 0) / 1'000'000);
  }
  return std::nullopt;
}

// Anything else might be no UTF-8, for which a collector would refuse everything.
bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
}

// Without "%20"s and space at either end.
std::optional<std::string> Decode(absl::string_view text) {
  std::string decoded;
  text = absl::StripAsciiWhitespace(text);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      return std::nullopt;
    }
    decoded += absl::HexStringToBytes(text.substr(i + 1, 2));
    i += 2;
  }
  return IsPrintable(decoded) ? std::optional(decoded) : std::nullopt;
}

}  // namespace

bool AddAttributes(const std::string& text, Attributes* attributes) {
  if (text.size() > kMaxAttributesText) return false;
  Attributes added;
  for (const absl::string_view member : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(member, absl::MaxSplits('=', 1));
    const auto key = Decode(parts.first);
    const auto value = Decode(parts.second);
    if (member.find('=') == member.npos || !key || key->empty() || !value) return false;
    added[*key] = *value;
  }
  for (auto& [key, value] : added) (*attributes)[key] = std::move(value);
  return true;
}

Attributes AttributesOfProcess() {
  Attributes attributes = {{"service.name", "castor"},
                           {"service.version", std::string(Version())},
                           {"service.instance.id", ToHex(NewTraceId())}};
  const auto set = [&](const char* key, const char* value) {
    if (value != nullptr && *value != '\0' && IsPrintable(value)) attributes[key] = value;
  };
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) set("host.name", host.data());
  set("k8s.pod.name", std::getenv("POD_NAME"));
  set("k8s.namespace.name", std::getenv("POD_NAMESPACE"));
  set("k8s.node.name", std::getenv("NODE_NAME"));
  const char* const more = std::getenv("OTEL_RESOURCE_ATTRIBUTES");
  if (more != nullptr && !AddAttributes(more, &attributes)) {
    LogWarning("OTEL_RESOURCE_ATTRIBUTES is ignored: it is not key=value,key=value in ASCII");
  }
  set("service.name", std::getenv("OTEL_SERVICE_NAME"));
  return attributes;
}

ExportResult ReadExportResult(const grpc::Status& status,
                              const otlp::ExportTraceServiceResponse& answer) {
  if (status.ok()) {
    return {.rejected = std::max<int64_t>(answer.partial_success().rejected_spans(), 0),
            .message = Printable(answer.partial_success().error_message(), kMaxShownBytes)};
  }
  ExportResult result{.kind = ExportResult::Kind::kTryAgain,
                      .delay = DelayOf(status),
                      .message = Printable(status.error_message(), kMaxShownBytes)};
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return result;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      if (result.delay.has_value()) return result;
      [[fallthrough]];
    default:
      result.kind = ExportResult::Kind::kRefused;
      return result;
  }
}

std::unique_ptr<otlp::TraceService::Stub> ConnectToCollector(const TraceOptions& options,
                                                             const std::string& authorities) {
  grpc::ChannelArguments arguments;
  arguments.SetUserAgentPrefix("castor-server/" + std::string(Version()));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a new channel is a new connection
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options.max_backoff.count()));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options.first_backoff.count()));
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);     // the Tracer's own are enough
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // to the endpoint and nowhere else
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = authorities;
  return otlp::TraceService::NewStub(grpc::CreateCustomChannel(
      "dns:///" + options.endpoint,
      options.tls ? grpc::SslCredentials(tls) : grpc::InsecureChannelCredentials(), arguments));
}

}  // namespace castor::server
