#include "client/cli/command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>  // program_invocation_short_name
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "client/cli/values.h"
#include "client/file.h"
#include "client/npy.h"
#include "client/utf8.h"

namespace castor::cli {
namespace {

// Takes the format from the file's name, and refuses names that contradict --output: a table in
// x.npy would be noticed late.
void ChooseFormat(const CLI::Option& output, const CLI::Option& file, bool npy,
                  CommonFlags* flags) {
  const std::string extension =
      absl::AsciiStrToLower(std::filesystem::path(flags->file).extension().string());
  constexpr std::string_view kOthers =
      " .csv .tsv .jsonl .ndjson .npz .parquet .pkl .pt .safetensors .html .xml .yaml ";
  if (output.count() == 0 && kOthers.find(" " + extension + " ") != std::string_view::npos) {
    throw CLI::ValidationError("--file " + flags->file,
                               "this command writes .txt, .json" +
                                   std::string(npy ? " and .npy" : "") +
                                   "; --output says which where the name does not");
  }
  const std::string named = extension == ".npy" ? "npy" : extension == ".json" ? "json" : "";
  if (!named.empty() && output.count() == 0) flags->output = named;
  if (!named.empty() && (flags->output != named || (named == "npy" && !npy))) {
    throw CLI::ValidationError("--file " + flags->file, named == "npy" && !npy
                                                            ? "this command cannot write .npy"
                                                            : "needs --output " + named);
  }
  if (flags->format() == OutputFormat::kNpy && file.count() == 0) {
    throw CLI::ValidationError("--output npy", "needs --file FILE.npy");
  }
}

// Accepts a gRPC target.
CLI::Validator Target() {
  return CLI::Validator(
      [](std::string& input) -> std::string {
        const size_t scheme = input.find("://");
        const std::string name = input.substr(0, scheme);
        if (name == "http" || name == "https" || name == "grpc" || name == "grpcs") {
          const std::string rest = input.substr(scheme + 3);
          return "takes HOST:PORT, not a URL: " + rest.substr(0, rest.find('/')) +
                 (name.ends_with('s') ? ", with --tls" : "");
        }
        return Name()(input);
      },
      "");
}

// The error's text, with a hint where one helps.
std::string TextOf(const client::Error& error, const CommonFlags& flags) {
  std::string hint;
  switch (error.code) {
    case grpc::StatusCode::UNAVAILABLE:
      if (error.reason.empty()) hint = HandshakeHint(error.message, flags.options());
      if (!hint.empty()) break;
      hint = error.reason.empty()
                 ? "is castor-server running at " + flags.server + "? Set --server or CASTOR_SERVER"
                 : "try again later, or try another server";
      break;
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      hint = AccessHint(error.code, flags.options());
      break;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      hint = "raise --timeout, up to the server's --max-deadline";
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
  return error.ToString() + (hint.empty() ? "" : "; " + hint);
}

}  // namespace

v1::Tensor ReadTensor(const std::string& path) { return OrUsageError(client::ReadNpy(path)); }

std::optional<int> KeepStandardDescriptors(char** argv) {
  bool missing = false;
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    // A descriptor that closes on exec was not inherited: a library has opened it since the start.
    const int flags = fcntl(descriptor, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) continue;
    missing = true;
    const int mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    const int useless = open("/dev/null", mode | O_CLOEXEC);
    if (useless < 0) return kUsageError;
    if (useless == descriptor) {
      fcntl(descriptor, F_SETFD, 0);
    } else if (dup2(useless, descriptor) < 0) {
      return kUsageError;
    }
  }
  if (!missing) return std::nullopt;
  // Run the program again, since that library has lost its descriptor.
  execv("/proc/self/exe", argv);
  return kUsageError;
}

void SilenceGrpc() { setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0); }

void PrintError(std::string_view message) {
  const std::string line =
      std::string(program_invocation_short_name) + ": " + client::CleanLine(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void WarnOfTruncation(const std::string& what, const std::string& places,
                      const std::string& result) {
  PrintError("warning: " + what +
             " were truncated to the model's maximum length ('castor models' shows it)" +
             (places.empty() ? "" : ": " + places) + "; " + result +
             "; --no-truncate refuses instead");
}

OutputFormat CommonFlags::format() const {
  if (output == "json") return OutputFormat::kJson;
  return output == "npy" ? OutputFormat::kNpy : OutputFormat::kTable;
}

client::ClientOptions CommonFlags::options() const {
  client::ClientOptions options;
  options.target = server;
  options.deadline = std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  security.ApplyTo(&options);
  return options;
}

client::Client CommonFlags::Connect() const {
  constexpr int kQuietAttempts = 5;  // within 1.5 s
  client::ClientOptions with_notice = options();
  with_notice.on_retry = [flags = *this](const client::Error& error) {
    if (error.attempts != kQuietAttempts) return;
    PrintError(TextOf(error, flags) + "; trying again until --timeout has passed");
  };
  return client::Client(with_notice);
}

void AddCommonFlags(CLI::App* command, CommonFlags* flags, bool npy) {
  AddOption(command, "Connection", "--server", &flags->server, "HOST:PORT",
            "Address of the server, or any gRPC target", Target())
      ->envname("CASTOR_SERVER")
      ->capture_default_str();
  AddOption(command, "Connection", "--timeout", &flags->timeout_seconds, "SECONDS",
            "Deadline of a call including its retries, in seconds", Number(0.001, 86400.0))
      ->capture_default_str();
  AddSecurityFlags(command, &flags->security, "Connection");
  CLI::Option* file =
      AddOption(command, "Output", "-f,--file", &flags->file, "FILE",
                "Write the output to this file instead of standard output", FileName());
  const std::vector<std::string> formats = npy ? std::vector<std::string>{"table", "json", "npy"}
                                               : std::vector<std::string>{"table", "json"};
  CLI::Option* output =
      AddOption(command, "Output", "-o,--output", &flags->output, "FORMAT",
                npy ? "table, json or npy (npy needs --file; default: by the extension of "
                      "--file, else table)"
                    : "table or json (default: by the extension of --file, else table)",
                CLI::IsMember(formats).description(""))
          ->capture_default_str();
  command->callback([=] { ChooseFormat(*output, *file, npy, flags); });
}

void AddModelFlag(CLI::App* command, const std::string& group, std::string* model) {
  AddOption(command, group, "--model", model, "NAME", "The model (default: the server's only one)",
            Name());
}

int ReportError(const client::Error& error, const CommonFlags& flags) {
  if (error.attempts == 0) {  // a file, or the token
    PrintError(error.message);
    return kUsageError;
  }
  PrintError(TextOf(error, flags));
  return kServerError;
}

int ReportWriteError(const absl::Status& status) {
  if (status.ok()) return kOk;
  PrintError(std::string(status.message()));
  return kUsageError;
}

int WriteText(const std::string& text) {
  return ReportWriteError(client::WriteStandardOutput(client::CleanText(text)));
}

int WriteText(const std::string& text, const CommonFlags& flags) {
  if (flags.file.empty()) return WriteText(text);
  return ReportWriteError(client::WriteFile(flags.file, {client::CleanText(text)}));
}

int WriteTensor(const v1::Tensor& tensor, const std::string& path) {
  return ReportWriteError(client::WriteNpy(path, tensor));
}

}  // namespace castor::cli
