// A collector of traces on a port of the system's choice, which keeps the spans it gets and can be
// told to refuse, to hang, to go away and to come back.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace castor::testing {

namespace otlp = opentelemetry::proto;
using Spans = std::vector<otlp::trace::v1::Span>;

// The value of an attribute as text: "7", "true", "OK"; nullopt: there is none.
std::optional<std::string> AttributeOf(const otlp::trace::v1::Span& span, const std::string& key);

// Those of the name, in the order in which they came.
Spans Named(const Spans& spans, const std::string& name);

// Any thread.
class TraceCollector final : private otlp::collector::trace::v1::TraceService::Service {
 public:
  TraceCollector() { Listen(); }
  ~TraceCollector() override;

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

  // ---- what it does

  // The answer to each export from now on; OK: it keeps the spans.
  void AnswerWith(grpc::Status status);
  // It keeps the spans and says that it has rejected so many.
  void Reject(int64_t spans);
  // While it hangs, no export is answered before its caller gives up.
  void Hang(bool hangs);
  // Its port is closed, and open again.
  void GoAway();
  void ComeBack() { Listen(); }

  // ---- what it saw

  Spans spans() const;
  int exports() const;                            // answered in whatever way, or hanging
  otlp::resource::v1::Resource resource() const;  // of the last export

  // Waits until it holds of the spans so far; false after 20 s, or longer under a sanitizer.
  bool Await(const std::function<bool(const Spans&)>& holds) const;
  bool AwaitSpans(size_t count) const;
  bool AwaitExports(int count) const;

 private:
  void Listen();
  grpc::Status Export(grpc::ServerContext* context,
                      const otlp::collector::trace::v1::ExportTraceServiceRequest* request,
                      otlp::collector::trace::v1::ExportTraceServiceResponse* response) override;

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;

  mutable Mutex mu_;
  mutable CondVar changed_;
  Spans spans_ ABSL_GUARDED_BY(mu_);
  otlp::resource::v1::Resource resource_ ABSL_GUARDED_BY(mu_);
  grpc::Status answer_ ABSL_GUARDED_BY(mu_);
  int64_t rejects_ ABSL_GUARDED_BY(mu_) = 0;
  int exports_ ABSL_GUARDED_BY(mu_) = 0;
  bool hangs_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace castor::testing
