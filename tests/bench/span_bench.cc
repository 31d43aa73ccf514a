// What a sampled request costs the server: its own thread's time, and that of all threads until its
// spans have left for a span_sink. Prints its own lines.
//   span_bench COLLECTOR [REQUESTS]

#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "server/metrics.h"
#include "server/tracing/tracer.h"
#include "tests/support/fake_engine.h"

namespace {

using namespace castor;
using namespace castor::server;

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// As EngineRequest and CallRecord do.
void Trace(Tracer& tracer, const ExecutionReport& report, Metrics& metrics) {
  std::unique_ptr<RequestTrace> trace =
      tracer.Begin(std::nullopt, "castor.v1.AttentionService/Attend");
  if (trace == nullptr) return;
  trace->received = std::chrono::steady_clock::now();
  trace->stage = Stage::kDecode;
  trace->submitted = std::chrono::steady_clock::now();
  trace->completed = std::chrono::steady_clock::now();
  trace->stage = Stage::kAnswer;
  NoteReport(report, 16, trace.get());
  trace->ended = std::chrono::steady_clock::now();
  trace->kernel = "vanilla";
  trace->code = "OK";
  trace->request_id = "a request";
  metrics.Finished(Method::kAttend, KernelName::kVanilla, grpc::StatusCode::OK, 1e-4, &trace->own);
  tracer.End(std::move(trace));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int requests = argc > 2 ? std::atoi(argv[2]) : 300'000;
  FakeEngine engine;
  Metrics metrics(engine);
  Tracer tracer(metrics.traces());
  TraceOptions options;
  options.endpoint = argv[1];
  options.sample = 1;
  if (!tracer.Start(options).ok()) return 1;
  ExecutionReport report;
  report.kernel.device = "cpu";
  report.kernel.backend = "cpu-avx512";
  report.timing = {.decode_us = 20, .queue_us = 10, .compute_us = 15};
  report.batch.requests = 2;
  double own = 0;
  const double all = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 0; i < requests; i += 200) {
    const double before = Seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int j = 0; j < 200; ++j) {
      report.batch.id = static_cast<uint64_t>(i + j) / 2;
      Trace(tracer, report, metrics);
    }
    own += Seconds(CLOCK_THREAD_CPUTIME_ID) - before;
    std::this_thread::sleep_for(std::chrono::milliseconds(4));  // 50,000 requests/s
  }
  tracer.Stop(std::chrono::steady_clock::now() + std::chrono::seconds(10));
  const double total = Seconds(CLOCK_PROCESS_CPUTIME_ID) - all;
  std::printf("own thread %.0f ns, all threads %.0f ns a sampled request; %zu bytes kept\n",
              1e9 * own / requests, 1e9 * total / requests, sizeof(RequestTrace));
  const std::string page = metrics.Page();
  const size_t dropped = page.find("spans_dropped_total{");
  std::printf("%s", page.substr(dropped, page.find("# HELP", dropped) - dropped).c_str());
  return 0;
}
