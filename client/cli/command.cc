#include "client/cli/command.h"

#include <cstdio>
#include <fstream>
#include <iostream>

#include "client/npy.h"

namespace castor::cli {

OutputFormat CommonFlags::format() const {
  if (output == "json") return OutputFormat::kJson;
  return output == "npy" ? OutputFormat::kNpy : OutputFormat::kTable;
}

client::Client CommonFlags::Connect() const {
  client::ClientOptions options;
  options.target = server;
  options.deadline = std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  return client::Client(options);
}

void AddCommonFlags(CLI::App* command, CommonFlags* flags, bool npy) {
  command->add_option("--server", flags->server, "Address of the server, or any gRPC target")
      ->envname("CASTOR_SERVER")
      ->type_name("HOST:PORT")
      ->capture_default_str()
      ->group("Connection");
  command
      ->add_option("--timeout", flags->timeout_seconds,
                   "Deadline of a call with its retries, in seconds")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 86400.0).description(""))
      ->capture_default_str()
      ->group("Connection");
  CLI::Option* file = command
                          ->add_option("-f,--file", flags->file,
                                       "Write the output to this file, not to standard output")
                          ->type_name("FILE")
                          ->group("Output");
  const std::vector<std::string> formats = npy ? std::vector<std::string>{"table", "json", "npy"}
                                               : std::vector<std::string>{"table", "json"};
  command
      ->add_option("-o,--output", flags->output,
                   npy ? "table, json, or npy (needs --file)" : "table or json")
      ->type_name("FORMAT")
      ->check(CLI::IsMember(formats).description(""))
      ->capture_default_str()
      ->group("Output");
  command->callback([flags, file] {
    if (flags->format() == OutputFormat::kNpy && file->count() == 0) {
      throw CLI::ValidationError("--output npy", "needs --file FILE.npy");
    }
  });
}

int ReportError(const client::Error& error, const CommonFlags& flags) {
  std::string hint;
  switch (error.code) {
    case grpc::StatusCode::UNAVAILABLE:
      hint = error.reason.empty()
                 ? "is castor-server running at " + flags.server + "? Set --server or CASTOR_SERVER"
                 : "try again later, or another server";
      break;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      hint = "allow more with --timeout";
      break;
    case grpc::StatusCode::NOT_FOUND:
      if (error.reason != "REGION_NOT_FOUND") hint = "'castor models' lists the models";
      break;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      hint = error.retry_after
                 ? "try again in " + std::to_string(error.retry_after->count()) + " ms"
                 : "'castor info' shows the limits";
      break;
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::FAILED_PRECONDITION:
      hint = "'castor info' shows what this server can run";
      break;
    default:
      break;
  }
  std::fprintf(stderr, "castor: %s%s%s\n", error.ToString().c_str(), hint.empty() ? "" : "; ",
               hint.c_str());
  return kServerError;
}

int WriteText(const std::string& text, const CommonFlags& flags) {
  if (flags.file.empty()) {
    std::cout << text << std::flush;
    return std::cout ? kOk : kServerError;
  }
  std::ofstream file(flags.file, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return kOk;
  std::fprintf(stderr, "castor: cannot write '%s'\n", flags.file.c_str());
  return kUsageError;
}

int WriteTensor(const v1::Tensor& tensor, const CommonFlags& flags) {
  const absl::Status status = client::WriteNpy(flags.file, tensor);
  if (status.ok()) return kOk;
  std::fprintf(stderr, "castor: %s\n", std::string(status.message()).c_str());
  return kUsageError;
}

}  // namespace castor::cli
