#include "server/tracing/otlp_exporter.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <random>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/errors.h"
#include "server/logging.h"
#include "server/options/small_file.h"
#include "server/version.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr double kGrowth = 1.5;
constexpr size_t kMaxShownBytes = 256;
constexpr int64_t kMaxDelaySeconds = 3600;

// Some time around `time`, so that servers that lost a collector together do not return together.
nanoseconds Jittered(nanoseconds time) {
  thread_local std::minstd_rand random(std::random_device{}());
  const double factor = std::uniform_real_distribution<double>(0.8, 1.2)(random);
  return std::chrono::duration_cast<nanoseconds>(time * factor);
}

// gRPC's deadlines are on the system's clock.
std::chrono::system_clock::time_point OnSystemClock(TimePoint time) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(time -
                                                                         steady_clock::now());
}

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

bool MayBeTriedAgain(grpc::StatusCode code, bool says_when) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return says_when;
    default:
      return false;
  }
}

}  // namespace

ExportResult ReadExportResult(const grpc::Status& status,
                              const otlp::ExportTraceServiceResponse& answer) {
  ExportResult result;
  if (status.ok()) {
    result.rejected = std::max<int64_t>(answer.partial_success().rejected_spans(), 0);
    result.message = Printable(answer.partial_success().error_message(), kMaxShownBytes);
    return result;
  }
  result.delay = DelayOf(status);
  result.kind = MayBeTriedAgain(status.error_code(), result.delay.has_value())
                    ? ExportResult::Kind::kTryAgain
                    : ExportResult::Kind::kRefused;
  result.message = Printable(status.error_message(), kMaxShownBytes);
  return result;
}

absl::StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::Open(const TraceOptions& options,
                                                                 TraceMetrics& metrics) {
  std::string authorities;
  if (!options.ca.empty()) {
    absl::StatusOr<std::string> read = ReadSmallFile(options.ca);
    if (!read.ok()) {
      return absl::FailedPreconditionError("OTEL_EXPORTER_OTLP_CERTIFICATE: " +
                                           std::string(read.status().message()));
    }
    authorities = *std::move(read);
  }
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(options, std::move(authorities), metrics));
}

void OtlpExporter::Connect() {
  grpc::ChannelArguments arguments;
  arguments.SetUserAgentPrefix("castor-server/" + std::string(Version()));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a new channel is a new connection
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options_.max_backoff.count()));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options_.first_backoff.count()));
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);     // Export's own are enough
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // to the endpoint and nowhere else
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options_.tls) {
    grpc::SslCredentialsOptions tls;
    tls.pem_root_certs = authorities_;
    credentials = grpc::SslCredentials(tls);
  }
  stub_ = otlp::TraceService::NewStub(
      grpc::CreateCustomChannel("dns:///" + options_.endpoint, credentials, arguments));
}

void OtlpExporter::Export(const otlp::ExportTraceServiceRequest& request, int64_t spans) {
  const TimePoint give_up = steady_clock::now() + options_.give_up_after;
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
    if (!Pause(result.delay.value_or(milliseconds(0)) + Jittered(backoff), until)) break;
    backoff = std::min<nanoseconds>(std::chrono::duration_cast<nanoseconds>(backoff * kGrowth),
                                    options_.max_backoff);
  }
  const bool ending = end() != TimePoint::max();
  metrics_.Dropped(ending ? DroppedSpans::kShutdown : DroppedSpans::kFailed, spans);
}

ExportResult OtlpExporter::Call(const otlp::ExportTraceServiceRequest& request, TimePoint until) {
  if (stub_ == nullptr) Connect();
  grpc::ClientContext context;
  context.set_deadline(OnSystemClock(until));
  {
    MutexLock lock(mu_);
    calling_ = &context;
  }
  otlp::ExportTraceServiceResponse answer;
  const grpc::Status status = stub_->Export(&context, request, &answer);
  {
    MutexLock lock(mu_);
    calling_ = nullptr;
  }
  // The connection may lead nowhere, which nobody would say.
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) stub_.reset();
  return ReadExportResult(status, answer);
}

bool OtlpExporter::Pause(nanoseconds time, TimePoint until) {
  const TimePoint over = steady_clock::now() + time;
  if (over >= until) return false;
  MutexLock lock(mu_);
  while (over < end_ && changed_.WaitUntil(mu_, over)) {
  }
  return over < end_;
}

void OtlpExporter::FinishBy(TimePoint when) {
  MutexLock lock(mu_);
  end_ = when;
  changed_.NotifyOne();
}

void OtlpExporter::Cancel() {
  MutexLock lock(mu_);
  if (calling_ != nullptr) calling_->TryCancel();
}

}  // namespace castor::server
