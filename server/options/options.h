// How castor-server is told what to do: flags, CASTOR_* environment variables and a TOML file, in
// this order of precedence. Every value is checked here, before anything is opened.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>

#include "engine/base/machine.h"
#include "engine/engine.h"
#include "server/lifecycle/environment.h"
#include "server/logging.h"
#include "server/options/access_options.h"
#include "server/tracing/request_trace.h"

namespace castor::server {

// Other protocols, served on the same port as castor.v1.
struct Protocols {
  bool oip = true;  // the Open Inference Protocol
  bool tei = true;  // tei.v1

  bool operator==(const Protocols&) const = default;
};

// The HTTP door (--http-...).
struct HttpOptions {
  std::string listen;        // empty: none
  std::string allow_origin;  // of browsers' requests (CORS): an origin, or *; empty: none
  bool token_ids = false;    // ids may stand in place of texts
};

struct ServerOptions {
  // ---- network
  std::string listen = "127.0.0.1:50051";         // port 0: the system picks one
  std::string metrics_listen = "127.0.0.1:9464";  // empty: no metrics endpoint
  std::string health_listen;                      // empty: no health port
  HttpOptions http;
  Protocols protocols;
  std::string tei_model;  // that tei.v1 serves where a call says nothing; empty: the only one
  int64_t max_message_bytes = MemoryShare(int64_t{256} << 20, 16);  // one request message
  int32_t max_concurrent_streams = 256;                             // calls on one connection
  int64_t max_connections = 0;      // 0: what the limit on descriptors leaves, at most 4096
  int64_t max_transport_bytes = 0;  // before the engine has them; 0: a quarter of the memory
  std::chrono::milliseconds transfer_timeout{60'000};  // of a message in, and of an answer out
  std::chrono::milliseconds max_connection_age{0};     // 0: unlimited; +-10% jitter

  // ---- network, without flags
  int64_t max_connections_per_host = 0;  // 0: three quarters of max_connections
  int64_t max_new_connections = 0;       // without a call yet; 0: a quarter of max_connections
  int64_t max_health_connections = 0;    // on health_listen; 0: 64 or what there is room for
  int64_t max_calls = 0;  // on all connections; 0: twice the engine's queue, at least 8192
  std::chrono::milliseconds handshake_timeout{10'000};

  // ---- who gets in
  AccessOptions access;

  // ---- freed memory that is kept for the next message
  int64_t max_kept_bytes = KeptFreeBytes();

  // ---- shared memory, for callers on this machine
  bool shared_memory = false;
  int64_t max_shared_memory_regions = 64;  // no flag; each takes a file descriptor

  // ---- engine: models, device, batching and budgets
  EngineOptions engine;

  // ---- lifecycle
  std::chrono::milliseconds max_deadline{600'000};   // of calls that bring none or a later one
  std::chrono::milliseconds drain_delay{0};          // still serving, readiness already down
  std::chrono::milliseconds drain_deadline{30'000};  // for what was admitted
  // How long the engine may have work and make no progress before it counts as hanging; 0: for
  // ever.
  std::chrono::milliseconds watchdog_timeout{60'000};

  // ---- observability
  LogFormat log_format = LogFormat::kHuman;
  LogLevel log_level = LogLevel::kInfo;
  bool reflection = true;
  bool load_reports = false;  // in answers' trailers
  TraceOptions trace;
};

// The options, or the exit code with which main should return at once: 0 after --help or
// --version, 2 after an error, which was printed to standard error as one line.
std::variant<ServerOptions, int> ParseOptions(int argc, const char* const* argv);

}  // namespace castor::server
