#include "server/tracing/otlp.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/errors.h"
#include "server/logging.h"
#include "server/tracing/trace_context.h"
#include "server/version.h"

namespace castor::server {
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
