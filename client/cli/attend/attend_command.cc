// castor attend: sends one attention problem and checks the answer to a random one.
#include <google/protobuf/util/json_util.h>

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/attend/attend_problem.h"
#include "client/cli/attend/exact_check.h"
#include "client/cli/attend/kernel_flags.h"
#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/tensor.h"

namespace castor::cli {
namespace {

// Multiply-adds that a check may cost: about a second's worth.
constexpr int64_t kCheckOperations = 600'000'000;

constexpr double kGreatest = std::numeric_limits<double>::max();

struct AttendFlags {
  CommonFlags common;
  ProblemFlags problem;
  std::string kernel;
  std::optional<double> scale;  // default: the server's
  int32_t fidelity_rows = 0;
  std::string fields;  // more of the request, as JSON
  bool no_check = false;
  double tolerance = 0;  // 0: by dtype for exact kernels, none for others
};

v1::AttendRequest MakeRequest(const AttendFlags& flags) {
  v1::AttendRequest request = MakeProblem(flags.problem);
  if (flags.scale) request.set_softmax_scale(*flags.scale);
  request.set_fidelity_rows(flags.fidelity_rows);
  ApplyKernel(flags.kernel, &request);
  DrawCastInputs(flags.problem, &request);
  if (flags.fields.empty()) return request;
  v1::AttendRequest more;
  const auto read = google::protobuf::util::JsonStringToMessage(flags.fields, &more);
  if (!read.ok()) throw UsageError("--fields: " + std::string(read.message()));
  request.MergeFrom(more);
  return request;
}

bool IsExact(const std::string& kernel) { return kernel.empty() || IsKernel(kernel, "vanilla"); }

struct Verdict {
  CheckResult result;
  double tolerance = 0;  // 0: the error is reported, not judged
  bool passed = false;
};

// nullopt if the answer is not to be checked. CAST never is: it does not approximate exact
// attention. Nor are --fields, which may ask for anything.
std::optional<Verdict> Judge(const AttendFlags& flags, const v1::AttendRequest& request,
                             const v1::AttendResponse& response) {
  if (flags.no_check || !flags.problem.random() || request.has_cast() || !flags.fields.empty()) {
    return std::nullopt;
  }
  Verdict verdict = {.result = CheckExactly(request, response, kCheckOperations),
                     .tolerance = flags.tolerance};
  // A request for exact attention is held to it, whatever kernel the answer names.
  const bool exact = response.kernel().name() == v1::VANILLA || IsExact(flags.kernel);
  if (verdict.tolerance == 0 && exact) {
    verdict.tolerance = ExactTolerance(request.query().dtype());
  }
  const CheckResult& result = verdict.result;
  verdict.passed =
      result.finite && (verdict.tolerance == 0 || result.relative_error <= verdict.tolerance);
  return verdict;
}

std::string VerdictText(const Verdict& verdict) {
  const CheckResult& result = verdict.result;
  const std::string error = "relative error " + FormatReal(result.relative_error, "%.2e") +
                            " over " + std::to_string(result.rows_checked) + " of " +
                            std::to_string(result.rows) + " rows, against float64 computed here";
  if (!result.finite) return "FAILED: the answer contains NaN or Inf; " + error;
  if (verdict.tolerance == 0) return error + " (approximate kernel: not judged)";
  return (verdict.passed ? "passed: " : "FAILED: ") + error + " (tolerance " +
         FormatReal(verdict.tolerance, "%.1e") + ")";
}

std::string Table(const v1::AttendRequest& request, const v1::AttendResponse& response,
                  const std::optional<Verdict>& verdict, double round_trip_us) {
  Rows rows;
  const auto shape = [](const v1::Tensor& tensor) { return client::ShapeString(tensor); };
  const int sequences = request.query_lengths_size();
  rows.emplace_back(
      "problem", "query " + shape(request.query()) + ", key " + shape(request.key()) + ", value " +
                     shape(request.value()) + ", " + v1::DataType_Name(request.query().dtype()) +
                     (sequences == 0 ? ""
                                     : ", " + std::to_string(sequences) +
                                           (sequences == 1 ? " sequence" : " sequences")));
  rows.emplace_back("output",
                    shape(response.output()) + " " + v1::DataType_Name(response.output().dtype()));
  if (response.has_log_sum_exp()) {
    rows.emplace_back("log_sum_exp", shape(response.log_sum_exp()) + " FLOAT32");
  }
  AppendReports(response.kernel(), response.timing(), response.batch(), response.memory(),
                round_trip_us, &rows);
  if (response.has_fidelity()) {
    const v1::Fidelity& fidelity = response.fidelity();
    rows.emplace_back("fidelity", "relative error " +
                                      FormatReal(fidelity.relative_error(), "%.2e") + " over " +
                                      std::to_string(fidelity.rows()) +
                                      " rows per sequence, measured by the server in " +
                                      TimeText(1000 * fidelity.probe_us()));
  }
  if (verdict) rows.emplace_back("check", VerdictText(*verdict));
  return FormatRows(rows);
}

// All of the answer but its output's values; --output npy has those.
Json ReportJson(v1::AttendResponse response, const std::optional<Verdict>& verdict,
                double round_trip_us) {
  const Json output = {{"shape", client::ShapeOf(response.output())},
                       {"dtype", v1::DataType_Name(response.output().dtype())}};
  response.clear_output();
  Json json = ToJson(response);
  json["output"] = output;
  json["round_trip_us"] = round_trip_us;
  if (verdict) {
    json["check"] = {{"passed", verdict->passed},
                     {"relative_error", verdict->result.relative_error},
                     {"tolerance", verdict->tolerance},
                     {"rows_checked", verdict->result.rows_checked},
                     {"rows", verdict->result.rows}};
  }
  return json;
}

// Refuses options that would have no effect, where CLI11 cannot.
void CheckFlags(const CLI::App& command, const AttendFlags& flags) {
  const auto refuse = [&](const char* flag, bool useless, const char* why) {
    if (useless && command.count(flag) > 0) throw CLI::ValidationError(flag, why);
  };
  const bool cast = IsKernel(flags.kernel, "cast");
  refuse("--surrogate-tokens", !cast, "needs --kernel cast");
  refuse("--surrogate-tokens",
         HasParameter(flags.kernel, "surrogate-tokens") || HasParameter(flags.kernel, "layer"),
         "draws them: leave them out of --kernel");
  refuse("--fidelity-rows", cast || IsExact(flags.kernel),
         "needs --kernel clustered, improved-clustered or automatic");
  refuse("--tolerance", cast, "compares with exact attention, which CAST does not approximate");
  refuse("--tolerance", !flags.fields.empty(), "the answer is not checked with --fields");
  refuse("--tolerance", !flags.problem.random(), "needs a random problem: leave out --query");
}

int Run(const AttendFlags& flags) {
  const v1::AttendRequest request = MakeRequest(flags);
  client::Client client = flags.common.Connect();
  const auto begin = std::chrono::steady_clock::now();
  const auto response = client.Attend(request);
  const double round_trip_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  if (!response.ok()) return ReportError(response.error(), flags.common);

  if (const std::string mismatch = FindMismatch(request, *response); !mismatch.empty()) {
    PrintError("the answer does not fit the request: " + mismatch);
    return kServerError;
  }
  const std::optional<Verdict> verdict = Judge(flags, request, *response);
  int written = kOk;
  switch (flags.common.format()) {
    case OutputFormat::kTable:
      written = WriteText(Table(request, *response, verdict, round_trip_us), flags.common);
      break;
    case OutputFormat::kJson:
      written = WriteText(JsonText(ReportJson(*response, verdict, round_trip_us)), flags.common);
      break;
    case OutputFormat::kNpy:
      written = WriteTensor(response->output(), flags.common.file);
      break;
  }
  if (written != kOk) return written;
  if (!verdict || verdict->passed) return kOk;
  PrintError("check " + VerdictText(*verdict));
  return kCheckFailed;
}

}  // namespace

Runner AddAttendCommand(CLI::App* command) {
  auto flags = std::make_shared<AttendFlags>();
  AddProblemFlags(command, &flags->problem);
  AddKernelFlag(command, &flags->kernel);
  const std::string group = "Request";
  AddOption(command, group, "--scale", &flags->scale, "X",
            "Softmax scale (default: 1 / sqrt(head_dim))", Number(-kGreatest, kGreatest))
      ->default_str("");
  AddOption(command, group, "--fidelity-rows", &flags->fidelity_rows, "N",
            "Have the server measure an approximation's error on N rows per sequence, 0 to 1024",
            Number(0, 1024));
  command
      ->add_option("--fields", flags->fields,
                   "More fields of AttendRequest, such as positions, softcap, returnLogSumExp or "
                   "priority. The answer is not checked then")
      ->type_name("JSON")
      ->group(group);
  auto* no_check = command
                       ->add_flag("--no-check", flags->no_check,
                                  "Do not compare the answer to a random problem with exact "
                                  "attention computed here in double precision")
                       ->group("Check");
  AddOption(command, "Check", "--tolerance", &flags->tolerance, "X",
            "Largest relative error that passes (default: 1e-5 for float32, 2e-3 for "
            "float16, 1.5e-2 for bfloat16; not for approximate kernels)",
            Number(std::numeric_limits<double>::min(), kGreatest))
      ->excludes(no_check);
  AddCommonFlags(command, &flags->common, true);
  command->footer(
      "Examples:\n"
      "  castor attend --lengths 128,77,512 --heads 8 --kernel vanilla,causal=true\n"
      "  castor attend --lengths 4096 --dtype float16 --kernel clustered,clusters=200\n"
      "  castor attend --lengths 8192 --inputs structured \\\n"
      "      --kernel automatic,max-relative-error=0.1\n"
      "  castor attend --lengths 64 --key-lengths 4096 --heads 32 --kv-heads 8\n"
      "  castor attend --lengths 4096 --fields '{\"positions\": {\"window\": {\"left\": 256}}}'\n"
      "  castor attend --query q.npy --key k.npy --value v.npy --lengths 10,20 --file out.npy\n");
  return [command, flags] {
    CheckFlags(*command, *flags);
    return Run(*flags);
  };
}

}  // namespace castor::cli
