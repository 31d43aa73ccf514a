#include "server/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <string>

#include "server/logging.h"

namespace castor::server {
namespace {

void Log(gpr_log_func_args* line) {
  LogDebug("grpc", {{"severity", gpr_log_severity_string(line->severity)},
                    {"file", line->file},
                    {"line", line->line},
                    {"text", line->message}});
}

void LogOfProtobuf(google::protobuf::LogLevel, const char* file, int line,
                   const std::string& text) {
  LogDebug("protobuf", {{"file", file}, {"line", line}, {"text", text}});
}

}  // namespace

void SendGrpcLogToOurs() {
  gpr_set_log_function(Log);
  google::protobuf::SetLogHandler(LogOfProtobuf);
}

}  // namespace castor::server
