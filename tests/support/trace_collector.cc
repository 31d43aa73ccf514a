#include "tests/support/trace_collector.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "tests/support/sanitizer.h"

namespace castor::testing {
namespace {

using otlp::common::v1::AnyValue;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience = Patience(std::chrono::milliseconds(20'000));

std::string TextOf(const AnyValue& value) {
  switch (value.value_case()) {
    case AnyValue::kStringValue:
      return value.string_value();
    case AnyValue::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case AnyValue::kIntValue:
      return std::to_string(value.int_value());
    case AnyValue::kDoubleValue:
      return std::to_string(value.double_value());
    default:
      return "";
  }
}

}  // namespace

std::optional<std::string> AttributeOf(const otlp::trace::v1::Span& span, const std::string& key) {
  for (const auto& attribute : span.attributes()) {
    if (attribute.key() == key) return TextOf(attribute.value());
  }
  return std::nullopt;
}

Spans Named(const Spans& spans, const std::string& name) {
  Spans found;
  for (const auto& span : spans) {
    if (span.name() == name) found.push_back(span);
  }
  return found;
}

TraceCollector::~TraceCollector() {
  Hang(false);
  GoAway();
}

void TraceCollector::Listen() {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(endpoint(), grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr);
}

void TraceCollector::GoAway() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void TraceCollector::AnswerWith(grpc::Status status) {
  MutexLock lock(mu_);
  answer_ = std::move(status);
}

void TraceCollector::Reject(int64_t spans) {
  MutexLock lock(mu_);
  rejects_ = spans;
}

void TraceCollector::Hang(bool hangs) {
  MutexLock lock(mu_);
  hangs_ = hangs;
  changed_.NotifyAll();
}

grpc::Status TraceCollector::Export(
    grpc::ServerContext* context,
    const otlp::collector::trace::v1::ExportTraceServiceRequest* request,
    otlp::collector::trace::v1::ExportTraceServiceResponse* response) {
  MutexLock lock(mu_);
  ++exports_;
  changed_.NotifyAll();
  while (hangs_ && !context->IsCancelled()) {
    changed_.WaitUntil(mu_, steady_clock::now() + std::chrono::milliseconds(20));
  }
  if (!answer_.ok()) return answer_;
  for (const auto& resource : request->resource_spans()) {
    resource_ = resource.resource();
    for (const auto& scope : resource.scope_spans()) {
      spans_.insert(spans_.end(), scope.spans().begin(), scope.spans().end());
    }
  }
  if (rejects_ > 0) {
    response->mutable_partial_success()->set_rejected_spans(rejects_);
    response->mutable_partial_success()->set_error_message("not those");
  }
  return grpc::Status::OK;
}

Spans TraceCollector::spans() const {
  MutexLock lock(mu_);
  return spans_;
}

int TraceCollector::exports() const {
  MutexLock lock(mu_);
  return exports_;
}

otlp::resource::v1::Resource TraceCollector::resource() const {
  MutexLock lock(mu_);
  return resource_;
}

bool TraceCollector::Await(const std::function<bool(const Spans&)>& holds) const {
  const auto deadline = steady_clock::now() + kPatience;
  MutexLock lock(mu_);
  while (!holds(spans_)) {
    changed_.WaitUntil(mu_, std::min(deadline, steady_clock::now() + std::chrono::milliseconds(5)));
    if (steady_clock::now() >= deadline) return holds(spans_);
  }
  return true;
}

bool TraceCollector::AwaitSpans(size_t count) const {
  return Await([&](const Spans& spans) { return spans.size() >= count; });
}

bool TraceCollector::AwaitExports(int count) const {
  return Await([&](const Spans&) ABSL_NO_THREAD_SAFETY_ANALYSIS { return exports_ >= count; });
}

}  // namespace castor::testing
