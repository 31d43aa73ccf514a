#include "server/grpc_log.h"

#include <grpc/support/log.h>

#include "server/logging.h"

namespace castor::server {
namespace {

void Log(gpr_log_func_args* line) {
  LogDebug("grpc", {{"severity", gpr_log_severity_string(line->severity)},
                    {"file", line->file},
                    {"line", line->line},
                    {"text", line->message}});
}

}  // namespace

void SendGrpcLogToOurs() { gpr_set_log_function(Log); }

}  // namespace castor::server
