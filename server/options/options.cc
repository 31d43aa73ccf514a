#include "server/options/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/option_bounds.h"
#include "server/options/flag_values.h"
#include "server/options/option_kinds.h"
#include "server/version.h"

namespace castor::server {
namespace {

// In milliseconds.
constexpr int64_t kSecond = 1000, kHour = 3600 * kSecond;

void DeclareNetwork(Declarer& declare, ServerOptions& options) {
  declare.Group("Network");
  declare.Text("--listen", "HOST:PORT", options.listen,
               "Address of the gRPC services, or unix:PATH; port 0 picks a free port",
               [&options](const std::string& text) -> std::string {
                 constexpr std::string_view kUnix = "unix:";
                 options.listen = text;
                 if (!text.starts_with(kUnix)) return CheckAddress(text);
                 return text.size() > kUnix.size() ? "" : "needs a socket path";
               });
  const auto address_or_off = [](std::string* address) {
    return [address](const std::string& text) -> std::string {
      const bool off = text.empty() || text == "off";
      *address = off ? "" : text;
      return off ? "" : CheckAddress(text);
    };
  };
  declare.Text("--metrics-listen", "HOST:PORT", options.metrics_listen,
               "Address of /metrics for Prometheus; 'off' for none",
               address_or_off(&options.metrics_listen));
  declare.Text("--health-listen", "HOST:PORT", "off",
               "Address of a second, plaintext gRPC port that serves only health checks, without "
               "authentication; 'off' for none",
               address_or_off(&options.health_listen));
  declare.Text("--http-listen", "HOST:PORT", "off",
               "Address of the HTTP API: OpenAI's, Cohere's, text-embeddings-inference's and the "
               "Open Inference Protocol's paths, listed at /docs; 'off' for none",
               address_or_off(&options.http.listen));
  declare.Text("--http-allow-origin", "ORIGIN", &options.http.allow_origin,
               "Let pages of this origin call the HTTP API from a browser (CORS); '*' for any");
  declare.Flag("--http-token-ids", &options.http.token_ids,
               "Take token ids in place of texts over HTTP. Clients may send the ids of another "
               "model's vocabulary, as LangChain does by default");
  declare.Text(
      "--protocols", "LIST", "oip,tei",
      "Protocols served besides castor.v1: oip, the Open Inference Protocol; tei, tei.v1; "
      "'none' for neither",
      [&options](const std::string& text) { return ReadProtocols(text, &options.protocols); });
  declare.Text("--tei-model", "NAME", &options.tei_model,
               "The model that tei.v1 serves, where several are loaded and a call does not choose "
               "one by its metadata castor-model");
  declare.Number("--max-concurrent-streams", &options.max_concurrent_streams, {1, 65536},
                 "Concurrent calls on one connection");
  declare.Number("--max-connections", &options.max_connections, {0, 1 << 20},
                 "Concurrent connections, two file descriptors each; 0: as many as ulimit -n "
                 "allows, at most 4096. One address may have three quarters of them, and a quarter "
                 "may have made no call yet");
  declare.Bytes(
      "--max-transport-bytes", &options.max_transport_bytes, {0, int64_t{1} << 40},
      "Memory for messages before the engine has them: two thirds for those that are arriving, on "
      "all connections, one for those that are being decoded; 0: a quarter of the memory limit, "
      "but room for three of the largest messages");
  declare.Time("--transfer-timeout", &options.transfer_timeout, {kSecond, kHour},
               "Time to receive a request's message, and to deliver its answer");
  declare.Time(
      "--max-connection-age", &options.max_connection_age, {0, 24 * kHour},
      "Age at which clients are asked to reconnect, so that they find new servers; calls that run "
      "by then have --max-deadline to finish. 0: never");

  declare.Group("Shared memory");
  declare.Flag(
      "--shared-memory", &options.shared_memory,
      "Read and write tensors in POSIX shared memory. Callers can then access every shared-memory "
      "object of the server's user: enable it only if all callers are trusted");
}

void DeclareAccess(Declarer& declare, ServerOptions& options) {
  AccessOptions& access = options.access;
  declare.Group("Security");
  declare.Text("--tls-certificate", "FILE", &access.tls.certificate,
               "Use TLS with this certificate, followed by any intermediate certificates, in PEM. "
               "Changes to this and the other files here take effect within two seconds");
  declare.Text("--tls-key", "FILE", &access.tls.key, "The certificate's private key, in PEM");
  declare.Text("--tls-client-ca", "FILE", &access.tls.client_ca,
               "Accept only clients with a certificate from these authorities, in PEM");
  declare.Choice<TlsVersion>("--tls-min-version", &access.tls_min_version,
                             {{"1.2", TlsVersion::k12}, {"1.3", TlsVersion::k13}},
                             "Oldest TLS version to accept, also from a trace collector");
  declare.Text("--auth-tokens", "FILE", &access.callers,
               "Accept only the callers in this file, by token or by certificate name; "
               "'castor-server token NAME' makes an entry");
  declare.Flag("--insecure-tokens", &access.insecure_tokens,
               "Accept tokens over plaintext from other machines. Anyone on the network path can "
               "read them: use it only behind a proxy or mesh that encrypts");
  declare.Flag("--metrics-tls", &access.metrics_tls,
               "Serve /metrics over TLS, with the same certificate");
  declare.Flag("--metrics-auth", &access.metrics_callers,
               "Serve /metrics only to callers of --auth-tokens whose entry allows \"metrics\": a "
               "bearer token, or the name and the token as user and password");
}

void DeclareService(Declarer& declare, ServerOptions& options) {
  declare.Group("Limits");
  declare.Bytes("--max-message-bytes", &options.max_message_bytes, {1024, (int64_t{2} << 30) - 1},
                "The largest request message; by default at most a 16th of the memory");
  declare.Bytes("--max-kept-bytes", &options.max_kept_bytes, {0, int64_t{1} << 40},
                "Freed memory kept for the next messages, and as much again of staging memory; by "
                "default at most an eighth of the memory each");
  declare.Time("--max-deadline", &options.max_deadline, {kSecond, 24 * kHour},
               "Longest deadline; also applies to calls without one");

  declare.Group("Lifecycle");
  declare.Time("--drain-delay", &options.drain_delay, {0, kHour},
               "After SIGTERM, keep serving this long while readiness is NOT_SERVING");
  declare.Time("--drain-deadline", &options.drain_deadline, {0, kHour},
               "After the drain delay, time to finish admitted requests");
  declare.Time("--watchdog-timeout", &options.watchdog_timeout, {0, 24 * kHour},
               "Liveness fails when the engine has work but makes no progress for this long. On a "
               "GPU this must exceed the longest batch. 0: never");

  declare.Group("Observability");
  declare.Choice<LogFormat>("--log-format", &options.log_format,
                            {{"human", LogFormat::kHuman}, {"json", LogFormat::kJson}},
                            "Human-readable lines, or one JSON object per line");
  declare.Choice<LogLevel>("--log-level", &options.log_level,
                           {{"debug", LogLevel::kDebug},
                            {"info", LogLevel::kInfo},
                            {"warning", LogLevel::kWarning},
                            {"error", LogLevel::kError}},
                           "Lowest severity to log");
  declare.Flag("--reflection", &options.reflection,
               "Serve gRPC reflection, for tools such as grpcurl");
  declare.Flag("--load-reports", &options.load_reports,
               "Report the server's load in each answer's trailers (ORCA), for load balancers");

  declare.Group("Traces");
  declare.Text(
      "--trace-endpoint", "[https://]HOST:PORT", "off",
      "Send traces to this collector by OTLP over gRPC; 'off' for none. https:// uses TLS, and "
      "trusts OTEL_EXPORTER_OTLP_CERTIFICATE (default: the system's authorities)",
      [&options](const std::string& text) { return ReadCollector(text, &options.trace); });
  declare.Share("--trace-sample", &options.trace.sample,
                "Share of traces that begin here to record. Callers that send a sampling decision "
                "override this; 0 disables recording");
  if (const char* ca = std::getenv("OTEL_EXPORTER_OTLP_CERTIFICATE")) options.trace.ca = ca;
}

enum class ModelType { kFloat32, kBFloat16, kInt8 };

void DeclareEngine(Declarer& declare, EngineOptions& engine, ModelType& model_type) {
  declare.Group("Models");
  declare.Choice<ModelType>("--model-dtype", &model_type,
                            {{"float32", ModelType::kFloat32},
                             {"bfloat16", ModelType::kBFloat16},
                             {"int8", ModelType::kInt8}},
                            "Type of the models' weights on the device; int8 is for linear layers "
                            "on a CPU, and its error is logged at start");
  ModelCatalog& catalog = engine.catalog;
  declare.Text("--model-root", "DIR", &catalog.root,
               "A folder whose folders are models that may be loaded while the server runs");
  declare.Choice<ModelControl>("--model-control", &catalog.control,
                               {{"none", ModelControl::kNone},
                                {"explicit", ModelControl::kExplicit},
                                {"auto", ModelControl::kAuto}},
                               "Who loads the models of --model-root: no one, LoadModel alone, or "
                               "the first request for a model too");
  declare.Bytes("--weights-budget", &catalog.weights_budget, kDeviceBytesBounds,
                "Memory for the weights of all models, set aside from --max-device-bytes where "
                "models may be loaded; those used least recently go first. 0: half of it");
  declare.Time("--idle-unload", &catalog.idle_unload, kIdleUnloadBounds,
               "Unload a model of --model-root that no request has used for so long; 0: never");
  declare.Bytes("--answer-cache", &engine.answer_cache, kAnswerCacheBounds,
                "Memory for answers of encoders, which equal requests of the same tenant then get "
                "again; 0: none");
  declare.Bytes("--max-text-bytes", &engine.max_text_bytes, kTextBytesBounds,
                "The longest text, in bytes of UTF-8");

  declare.Group("Device");
  declare.Text("--device", "NAME", engine.device,
               "Where to compute: auto (a GPU if present; it must work), cpu, cuda, cuda:N",
               [&engine](const std::string& text) {
                 engine.device = text;
                 return CheckDevice(text);
               });
  declare.Number("--cpu-threads", &engine.cpu_threads, kCpuThreadsBounds,
                 "Compute threads on the CPU, and as many tokenizer threads; 0: one of each per "
                 "processor");
  declare.Bytes("--max-device-bytes", &engine.max_device_bytes, kDeviceBytesBounds,
                "Device memory for models and running batches; 0: half of the memory on a CPU, "
                "most of it on a GPU");

  declare.Group("Batching");
  declare.Number("--max-batch-tokens", &engine.max_batch_tokens, kBatchTokensBounds,
                 "Token budget of a batch; a longer request runs alone");
  declare.Number("--max-batch-requests", &engine.max_batch_requests, kBatchRequestsBounds,
                 "Requests in one batch");
  declare.Time("--batch-delay", &engine.batch_delay, kBatchDelayBounds,
               "How long a request waits for its batch to be full; 0: not at all");

  declare.Group("Limits");
  declare.Number("--max-queued-requests", &engine.max_queued_requests, kQueuedRequestsBounds,
                 "Requests admitted and not yet answered");
  declare.Number("--max-queued-tokens", &engine.max_queued_tokens, kQueuedTokensBounds,
                 "Tokens admitted and not yet answered");
  declare.Bytes("--max-queued-bytes", &engine.max_queued_bytes, kQueuedBytesBounds,
                "Bytes of inputs and outputs admitted and not yet answered; by default at most a "
                "quarter of the memory");
  declare.Time(
      "--max-queued-time", &engine.max_queued_time, kQueuedTimeBounds,
      "Longest predicted wait for the device; requests that would wait longer are refused");
  declare.Time("--max-request-time", &engine.max_request_time, kRequestTimeBounds,
               "Longest predicted time of one request on the device; longer ones are refused");

  declare.Group("Kernels");
  declare.Time("--cost-model-budget", &engine.cost_model_budget, kCostModelBudgetBounds,
               "Time to measure the kernels at start, for the automatic kernel; 0 without "
               "--cost-model: it always runs the most exact kernel allowed");
  declare.Text("--cost-model", "FILE", &engine.cost_model_file,
               "Read the measurements from this file, or create it if missing: servers that share "
               "it choose alike. A file of another device or version is ignored");
  declare.Share(
      "--fidelity-share", &engine.fidelity_share,
      "Share of approximate requests without fidelity_rows whose error is measured for metrics");
}

[[noreturn]] void Fail(const std::string& flag, const std::string& problem) {
  throw CLI::ValidationError(flag, problem);
}

// Whether the options about who gets in go together.
void CheckAccess(const ServerOptions& options) {
  const AccessOptions& access = options.access;
  if (access.tls.certificate.empty() != access.tls.key.empty()) {
    const bool key = access.tls.certificate.empty();
    Fail(key ? "--tls-key" : "--tls-certificate",
         std::string("needs ") + (key ? "--tls-certificate" : "--tls-key") + " as well");
  }
  if (!access.tls.client_ca.empty() && !access.tls.on()) {
    Fail("--tls-client-ca", "needs --tls-certificate and --tls-key as well");
  }
  if (access.metrics_tls && !access.tls.on()) {
    Fail("--metrics-tls", "needs --tls-certificate and --tls-key as well");
  }
  if (access.metrics_callers && access.callers.empty()) {
    Fail("--metrics-auth", "needs --auth-tokens as well");
  }
  if (!access.callers.empty() && !options.engine.tenants.empty()) {
    Fail("--tenant-weight",
         "cannot be combined with --auth-tokens: set weights in its sections [tenant.NAME]");
  }
  if (access.callers.empty() || access.insecure_tokens) return;
  const auto fail_plaintext = [&](const char* flag, const std::string& listen, const char* remedy) {
    Fail(flag, listen + " is plaintext, so anyone on the network path can read tokens: set " +
                   remedy + ", or accept that with --insecure-tokens");
  };
  if (!access.tls.on() && !IsLocal(options.listen)) {
    fail_plaintext("--auth-tokens", "--listen " + options.listen,
                   "--tls-certificate and --tls-key");
  }
  if (!access.tls.on() && !options.http.listen.empty() && !IsLocal(options.http.listen)) {
    fail_plaintext("--auth-tokens", "--http-listen " + options.http.listen,
                   "--tls-certificate and --tls-key");
  }
  if (access.metrics_callers && !access.metrics_tls && !options.metrics_listen.empty() &&
      !IsLocal(options.metrics_listen)) {
    fail_plaintext("--metrics-auth", "--metrics-listen " + options.metrics_listen, "--metrics-tls");
  }
}

// "(from the environment variable CASTOR_X)" when that is where the option that `message` opens
// with got its value.
std::string SourceOf(const std::string& message, const Declarer& declare,
                     const std::vector<std::string>& arguments) {
  if (!message.starts_with("--")) return "";
  const std::string flag = message.substr(0, message.find_first_of(": "));
  if (const int64_t line = declare.LineOf(flag); line > 0) {
    return " (from line " + std::to_string(line) + " of the configuration file)";
  }
  for (const std::string& argument : arguments) {
    if (argument == flag || argument.starts_with(flag + "=")) return "";
  }
  const std::string environment = EnvironmentName(flag);
  return IsSet(environment) ? " (from the environment variable " + environment + ")" : "";
}

// Texts of the caller's, in one line that does nothing to a terminal.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace

std::variant<ServerOptions, int> ParseOptions(int argc, const char* const* argv) {
  ServerOptions options;
  options.engine.build = std::string(Version()) + " " + std::string(GitCommit());
  ModelType model_type = ModelType::kFloat32;
  std::vector<std::string> models, adapters;
  std::vector<std::string> weights;

  CLI::App app("Castor: attention and encoder inference over gRPC.\n", "castor-server");
  app.get_formatter()->column_width(44);
  app.set_version_flag(
      "--version",
      "castor-server " + std::string(Version()) + " (" + std::string(GitCommit()) + ")",
      "Print the version and exit");
  std::string file;
  const CLI::Option* const config =
      app.add_option("--config", file,
                     "Read options from this TOML file: keys are flags without '--', values true "
                     "or false, numbers, and strings")
          ->envname("CASTOR_CONFIG")
          ->type_name("FILE");
  app.footer(
      "Each option can also be set by its environment variable (--max-message-bytes by\n"
      "CASTOR_MAX_MESSAGE_BYTES) or in the file given by --config. Flags override the\n"
      "environment, which overrides the file. SIZE is a number with KiB, MiB or GiB, TIME one\n"
      "with us, ms, s, m or h. Processors and memory count as limited by affinity, cgroups\n"
      "(containers) and ulimit.\n\n"
      "'castor-server token NAME' makes a caller's token; see 'castor-server token --help'.\n"
      "Example:\n"
      "  castor-server --listen 0.0.0.0:50051 --model minilm=/models/all-MiniLM-L6-v2\n");

  Declarer declare(&app);
  DeclareNetwork(declare, options);
  DeclareAccess(declare, options);
  declare.Group("Models");
  declare.List(
      "--model", "[NAME=]PATH", &models,
      "A model to load: a directory as Hugging Face lays it out, or a .safetensors file of "
      "CAST layers, and the name to serve it under (default: its own), such as BAAI/bge-m3. "
      "Repeatable, or several separated by commas; a directory may have several names");
  declare.List("--adapter", "MODEL/TASK=DIR", &adapters,
               "A low-rank adapter of a --model, as PEFT saves it, and the name by which requests "
               "choose it. Repeatable, or several separated by commas");
  declare.Group("Limits");
  declare.List("--tenant-weight", "NAME=X", &weights,
               "A tenant's share of the device relative to the others' (default 1 each; 0.001 to "
               "1000). Repeatable, or several separated by commas");
  DeclareEngine(declare, options.engine, model_type);
  DeclareService(declare, options);

  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants it
    app.parse(std::move(reversed));
    if (config->count() > 0) declare.ReadFile(file);
    declare.Finish();
    for (const std::string& text : models) {
      ModelSource model = ParseModel(text);
      for (const ModelSource& other : options.engine.models) {
        if (other.name == model.name) {
          throw CLI::ValidationError("--model", "the name '" + model.name + "' is given twice");
        }
      }
      model.dtype = model_type == ModelType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
      model.int8 = model_type == ModelType::kInt8;
      options.engine.models.push_back(std::move(model));
    }
    for (const std::string& text : adapters) AddAdapter(text, &options.engine.models);
    ModelCatalog& catalog = options.engine.catalog;
    catalog.dtype = model_type == ModelType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
    catalog.int8 = model_type == ModelType::kInt8;
    const bool may_load = catalog.control != ModelControl::kNone;
    if (may_load && catalog.root.empty()) {
      throw CLI::ValidationError("--model-control", "needs --model-root");
    }
    if (!may_load && !catalog.root.empty()) {
      throw CLI::ValidationError("--model-root", "needs --model-control explicit or auto");
    }
    if (!may_load && (catalog.weights_budget != 0 || catalog.idle_unload.count() != 0)) {
      throw CLI::ValidationError(catalog.weights_budget != 0 ? "--weights-budget" : "--idle-unload",
                                 "needs --model-control explicit or auto");
    }
    if (std::error_code error; may_load && !std::filesystem::is_directory(catalog.root, error)) {
      throw CLI::ValidationError("--model-root", "'" + catalog.root + "' is not a folder");
    }
    if (!options.tei_model.empty() && !may_load &&
        std::ranges::count(options.engine.models, options.tei_model, &ModelSource::name) == 0) {
      throw CLI::ValidationError("--tei-model", "no --model has this name");
    }
    for (const std::string& text : weights) {
      const auto [tenant, weight] = ParseWeight(text);
      if (!options.engine.tenants.emplace(tenant, TenantTerms{.weight = weight}).second) {
        throw CLI::ValidationError("--tenant-weight", "'" + tenant + "' is given twice");
      }
    }
    options.engine.max_cached_host_bytes = options.max_kept_bytes;
    CheckAccess(options);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::Error& error) {
    const std::string message = error.what() + DidYouMean(app, error);
    std::fprintf(stderr, "castor-server: %s; see castor-server --help\n",
                 OneLine(message + SourceOf(message, declare, arguments)).c_str());
    return 2;
  }
  return options;
}

}  // namespace castor::server
