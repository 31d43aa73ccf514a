// Shared by the subcommands of `castor`: the connection's flags, exit codes, errors and output.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "castor/v1/tensor.pb.h"
#include "client/cli/report.h"
#include "client/cli/security_flags.h"
#include "client/cli/subcommands.h"
#include "client/client.h"
#include "client/error.h"

namespace castor::cli {

// Exit codes of the program.
inline constexpr int kOk = 0;
inline constexpr int kServerError = 1;  // the server, or the connection to it
inline constexpr int kUsageError = 2;   // local: flags, files, output, memory
inline constexpr int kCheckFailed = 3;  // the answer differs from the one computed here

enum class OutputFormat { kTable, kJson, kNpy };

// Flags that every subcommand takes, after its name.
struct CommonFlags {
  std::string server = "127.0.0.1:50051";
  SecurityFlags security{};
  double timeout_seconds = 60;
  std::string output = "table";
  std::string file;  // empty: standard output

  OutputFormat format() const;
  client::ClientOptions options() const;  // of the client
  client::Client Connect() const;
};

// A local error that CLI11 cannot see, such as a file's content.
class UsageError : public Failure {
 public:
  explicit UsageError(const std::string& message) : Failure(message, kUsageError) {}
};

template <typename Value>
Value OrUsageError(absl::StatusOr<Value> value) {
  if (!value.ok()) throw UsageError(std::string(value.status().message()));
  return *std::move(value);
}
inline void OrUsageError(const absl::Status& status) {
  if (!status.ok()) throw UsageError(std::string(status.message()));
}

// Runs the program again with unusable placeholders if one of the descriptors 0 to 2 is closed:
// otherwise a connection could get that descriptor, and printed text would go to the server.
// Returns an exit code only if that fails. Call it first.
std::optional<int> KeepStandardDescriptors(char** argv);

// Silences gRPC's own log unless GRPC_VERBOSITY asks for it. Call it before there are threads or
// channels.
void SilenceGrpc();

// Prints "PROGRAM: MESSAGE" as one clean line on standard error.
void PrintError(std::string_view message);

// Warns that the model truncated `what` ("2 of 3 inputs") at `places`, with this result.
void WarnOfTruncation(const std::string& what, const std::string& places,
                      const std::string& result);

// The tensor in an .npy file. Throws UsageError.
v1::Tensor ReadTensor(const std::string& path);

// Adds --server and so on; `npy` says whether --output accepts npy.
void AddCommonFlags(CLI::App* command, CommonFlags* flags, bool npy);

// Prints the error as one line on standard error, with a hint where one helps; returns its exit
// code.
int ReportError(const client::Error& error, const CommonFlags& flags);

// Reports an error of writing; returns the exit code.
int ReportWriteError(const absl::Status& status);

// Write text (with its newline) where the flags say, or an .npy file, and report errors. Return the
// exit code.
int WriteText(const std::string& text);  // to standard output
int WriteText(const std::string& text, const CommonFlags& flags);
int WriteTensor(const v1::Tensor& tensor, const std::string& path);

// Writes a call's answer, as JSON or as the text that `to_text` makes of it, or reports its error.
// Returns the exit code.
template <typename Response, typename ToText>
int Show(const client::Result<Response>& response, const CommonFlags& flags,
         const ToText& to_text) {
  if (!response.ok()) return ReportError(response.error(), flags);
  const bool json = flags.format() == OutputFormat::kJson;
  return WriteText(json ? JsonText(ToJson(*response)) : to_text(*response), flags);
}

// Adds --model.
void AddModelFlag(CLI::App* command, const std::string& group, std::string* model);

// The subcommands.
Runner AddAttendCommand(CLI::App* command);
Runner AddEncodeCommand(CLI::App* command);
Runner AddFetchCommand(CLI::App* command);
Runner AddRerankCommand(CLI::App* command);
Runner AddTokenizeCommand(CLI::App* command);
Runner AddModelsCommand(CLI::App* command);
Runner AddInfoCommand(CLI::App* command);
Runner AddHealthCommand(CLI::App* command);
Runner AddTopCommand(CLI::App* command);

}  // namespace castor::cli
