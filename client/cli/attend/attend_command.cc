// castor attend: one attention problem, and whether its answer is right.
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
  v1::Priority priority = v1::PRIORITY_DEFAULT;
  int32_t fidelity_rows = 0;
  bool check_finite = false;
  bool log_sum_exp = false;
  std::string log_sum_exp_file;  // empty: not written
  std::vector<int64_t> window;   // left and right
  int64_t always_visible = 0;
  std::vector<int64_t> query_position, key_position;
  std::vector<double> alibi;
  double softcap = 0;
  std::string key_bias;  // a file; empty: none
  bool shared_memory = false;
  std::string request_id;
  bool check = false;
  bool no_check = false;
  double tolerance = 0;  // 0: by dtype for exact kernels, none for others
};

void SetPositions(const AttendFlags& flags, v1::AttendRequest* request) {
  v1::Positions positions;
  if (!flags.window.empty()) {
    positions.mutable_window()->set_left(flags.window[0]);
    positions.mutable_window()->set_right(flags.window[1]);
  }
  positions.set_always_visible(flags.always_visible);
  positions.mutable_query()->Assign(flags.query_position.begin(), flags.query_position.end());
  positions.mutable_key()->Assign(flags.key_position.begin(), flags.key_position.end());
  for (const double slope : flags.alibi) positions.add_alibi_slopes(static_cast<float>(slope));
  if (positions.ByteSizeLong() > 0) *request->mutable_positions() = std::move(positions);
}

v1::AttendRequest MakeRequest(const AttendFlags& flags) {
  v1::AttendRequest request = MakeProblem(flags.problem, flags.shared_memory);
  request.set_request_id(flags.request_id);
  if (flags.scale) request.set_softmax_scale(*flags.scale);
  request.set_priority(flags.priority);
  request.set_fidelity_rows(flags.fidelity_rows);
  request.set_check_finite(flags.check_finite);
  request.set_return_log_sum_exp(flags.log_sum_exp);
  SetPositions(flags, &request);
  request.set_softcap(flags.softcap);
  if (!flags.key_bias.empty()) *request.mutable_key_bias() = ReadTensor(flags.key_bias);
  ApplyKernel(flags.kernel, &request);
  DrawCastInputs(flags.problem, flags.shared_memory, &request);
  return request;
}

bool IsExact(const std::string& kernel) { return kernel.empty() || IsKernel(kernel, "vanilla"); }

// The result of the check; nullopt when none was asked for.
struct Verdict {
  CheckResult result;
  double tolerance = 0;  // 0: the error is reported, not judged
  bool passed = false;
};

std::optional<Verdict> Judge(const AttendFlags& flags, const v1::AttendRequest& request,
                             const v1::AttendResponse& response) {
  const bool wanted = flags.check || (flags.problem.random() && !flags.no_check);
  // CAST is a function of its own: exact attention says nothing about it.
  if (!wanted || request.has_cast()) return std::nullopt;
  Verdict verdict;
  std::string problem;
  const auto result = CheckExactly(request, response, kCheckOperations, &problem);
  if (!result) throw UsageError(problem);  // of the request alone: see Run
  verdict.result = *result;
  verdict.tolerance = flags.tolerance;
  // Who was asked for exact attention is judged by it, whatever the answer says that it is.
  const bool exact = response.kernel().name() == v1::VANILLA || IsExact(flags.kernel);
  if (verdict.tolerance == 0 && exact) {
    verdict.tolerance = ExactTolerance(request.query().dtype());
  }
  verdict.passed = result->finite && (verdict.tolerance == 0 ||
                                      (result->relative_error <= verdict.tolerance &&
                                       result->log_sum_exp_error.value_or(0) <= verdict.tolerance));
  return verdict;
}

std::string VerdictText(const Verdict& verdict) {
  const CheckResult& result = verdict.result;
  const std::string rows = " over " + std::to_string(result.rows_checked) + " of " +
                           std::to_string(result.rows) + " rows, against float64 computed here";
  const std::string error =
      "relative error " + FormatReal(result.relative_error, "%.2e") +
      (result.log_sum_exp_error
           ? ", of log_sum_exp " + FormatReal(*result.log_sum_exp_error, "%.2e")
           : "") +
      rows;
  if (!result.finite) return "FAILED: the answer contains NaN or Inf; " + error;
  if (verdict.tolerance == 0) return error + " (approximate kernel: not judged)";
  return (verdict.passed ? "passed: " : "FAILED: ") + error + " (tolerance " +
         FormatReal(verdict.tolerance, "%.1e") + ")";
}

std::string Table(const v1::AttendRequest& request, const v1::AttendResponse& response,
                  const std::optional<Verdict>& verdict, double round_trip_us) {
  Rows rows;
  auto describe = [](const v1::Tensor& tensor) { return client::ShapeString(tensor); };
  rows.emplace_back("problem",
                    "query " + describe(request.query()) + ", key " + describe(request.key()) +
                        ", value " +
                        (request.value_is_key_prefix()
                             ? "the first " + std::to_string(request.value_dim()) + " of key"
                             : describe(request.value())) +
                        ", " + v1::DataType_Name(request.query().dtype()) +
                        (request.query_lengths_size() > 0
                             ? ", " + std::to_string(request.query_lengths_size()) +
                                   (request.query_lengths_size() == 1 ? " sequence" : " sequences")
                             : ""));
  rows.emplace_back(
      "output", describe(response.output()) + " " + v1::DataType_Name(response.output().dtype()));
  if (response.has_log_sum_exp()) {
    rows.emplace_back("log_sum_exp", describe(response.log_sum_exp()) + " " +
                                         v1::DataType_Name(response.log_sum_exp().dtype()));
  }
  AppendReports(response.kernel(), response.timing(), response.batch(), response.memory(),
                round_trip_us, &rows);
  if (response.has_fidelity()) {
    rows.emplace_back("fidelity", "relative error " +
                                      FormatReal(response.fidelity().relative_error(), "%.2e") +
                                      " over " + std::to_string(response.fidelity().rows()) +
                                      " rows per sequence, measured by the server in " +
                                      TimeText(1000 * response.fidelity().probe_us()));
  }
  if (verdict) rows.emplace_back("check", VerdictText(*verdict));
  return FormatRows(rows);
}

// Everything but the values, which are many; --output npy has them.
Json ReportJson(v1::AttendResponse response, const std::optional<Verdict>& verdict,
                double round_trip_us) {
  const auto describe = [](const v1::Tensor& tensor) -> Json {
    return {{"shape", client::ShapeOf(tensor)}, {"dtype", v1::DataType_Name(tensor.dtype())}};
  };
  const Json output = describe(response.output());
  const Json log_sum_exp = describe(response.log_sum_exp());
  const bool has_log_sum_exp = response.has_log_sum_exp();
  response.clear_output();
  response.clear_log_sum_exp();
  Json json = ToJson(response);
  json["output"] = output;
  if (has_log_sum_exp) json["log_sum_exp"] = log_sum_exp;
  json["round_trip_us"] = round_trip_us;
  if (verdict) {
    json["check"] = {{"passed", verdict->passed},
                     {"relative_error", verdict->result.relative_error},
                     {"tolerance", verdict->tolerance},
                     {"rows_checked", verdict->result.rows_checked},
                     {"rows", verdict->result.rows}};
    if (verdict->result.log_sum_exp_error) {
      json["check"]["log_sum_exp_error"] = *verdict->result.log_sum_exp_error;
    }
  }
  return json;
}

// Otherwise the server would hold the memory for ever. Do not wait for a server that does not
// answer at once.
void Unregister(const SharedProblem& shared, client::Client& client) {
  (void)client.UnregisterSharedMemory(shared.memory().name(),
                                      {.deadline = std::chrono::seconds(2)});
}

// What CLI11 cannot say: options that would have no effect.
void CheckFlags(const CLI::App& command, const AttendFlags& flags) {
  const auto refuse = [&](const char* flag, bool useless, const char* why) {
    if (useless && command.count(flag) > 0) throw CLI::ValidationError(flag, why);
  };
  const ProblemFlags& problem = flags.problem;
  const bool cast = IsKernel(flags.kernel, "cast");
  refuse("--value", problem.value_is_key_prefix, "is not sent with --value-is-key-prefix");
  refuse("--value-dim", !problem.random() && !problem.value_is_key_prefix,
         "needs --value-is-key-prefix with --query");
  if (!problem.random() && problem.value.empty() && !problem.value_is_key_prefix) {
    throw CLI::ValidationError("--query", "needs --value or --value-is-key-prefix");
  }
  if (!problem.random() && problem.value_is_key_prefix && problem.value_dim == 0) {
    throw CLI::ValidationError("--value-is-key-prefix", "needs --value-dim with --query");
  }
  refuse("--surrogate-tokens", !cast, "needs --kernel cast");
  refuse("--log-sum-exp", cast, "CAST has none");
  refuse("--surrogate-tokens",
         HasParameter(flags.kernel, "surrogate-tokens") || HasParameter(flags.kernel, "layer"),
         "draws them: leave them out of --kernel");
  refuse("--fidelity-rows", cast || IsExact(flags.kernel),
         "needs --kernel clustered, improved-clustered or automatic");
  refuse("--check", cast, "compares with exact attention, which CAST does not approximate");
  refuse("--tolerance", cast, "compares with exact attention, which CAST does not approximate");
  refuse("--tolerance", !flags.problem.random() && !flags.check, "needs --check");
}

int Run(const AttendFlags& flags) {
  const v1::AttendRequest request = MakeRequest(flags);
  client::Client client = flags.common.Connect();
  std::optional<SharedProblem> shared;
  if (flags.shared_memory) {
    const auto prefix = SharedKeyPrefix(client);
    if (!prefix.ok()) return ReportError(prefix.error(), flags.common);
    shared.emplace(request, *prefix);
    const auto registered = client.RegisterSharedMemory(shared->memory());
    if (!registered.ok()) {
      const int code = ReportError(registered.error(), flags.common);
      // An error without a reason: the region may have been registered all the same.
      if (registered.error().reason.empty()) Unregister(*shared, client);
      return code;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  auto response = client.Attend(shared ? shared->request() : request);
  const double round_trip_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  if (!response.ok()) {
    const int code = ReportError(response.error(), flags.common);
    if (shared) Unregister(*shared, client);
    return code;
  }
  if (shared) Unregister(*shared, client);
  if (shared) shared->TakeOutput(&*response);

  if (const std::string misfit = FindMisfit(request, *response); !misfit.empty()) {
    Complain("the answer does not fit the request: " + misfit);
    return kServerError;
  }
  const std::optional<Verdict> verdict = Judge(flags, request, *response);
  int written = kOk;
  if (!flags.log_sum_exp_file.empty()) {
    written = WriteTensor(response->log_sum_exp(), flags.log_sum_exp_file);
  }
  if (written != kOk) return written;
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
  Complain("check " + VerdictText(*verdict));
  return kCheckFailed;
}

// The flags that change scores in addition to --scale. The server refuses those that the kernel
// does not take.
void AddScoreFlags(CLI::App* command, AttendFlags* flags) {
  const std::string group = "Scores";
  constexpr int64_t kFar = int64_t{1} << 40;
  const auto list = [&](const char* flag, std::vector<int64_t>* values, const char* help,
                        int64_t least, const char* type) {
    return AddOption(command, group, flag, values, type, help, Number(least, kFar))
        ->delimiter(',')
        ->allow_extra_args(false);
  };
  list("--window", &flags->window,
       "A query sees the keys from L positions before it to R after it; -1: without bound", -1,
       "L,R")
      ->expected(2);
  AddOption(command, group, "--always-visible", &flags->always_visible, "N",
            "Keys at positions below N are never too far to the left for --window",
            Number(int64_t{0}, kFar));
  list("--query-position", &flags->query_position,
       "Position of each sequence's first query (default: its keys less its queries)", -kFar,
       "N,N,...");
  list("--key-position", &flags->key_position, "Position of each sequence's first key (default: 0)",
       -kFar, "N,N,...");
  AddOption(command, group, "--alibi", &flags->alibi, "X,X,...",
            "Each head's slope: scores lose it times the distance of query and key",
            Number(-1e30, 1e30))
      ->delimiter(',')
      ->allow_extra_args(false);
  AddOption(command, group, "--softcap", &flags->softcap, "X",
            "Scores s become X tanh(s / X), before biases",
            Number(std::numeric_limits<double>::min(), 1e30));
  AddOption(command, group, "--key-bias", &flags->key_bias, "FILE.npy",
            "Added to each key's scores, [tokens] or [tokens, kv_heads] of <f4; -inf hides it",
            FileName());
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
  AddOption(command, group, "--priority", &flags->priority, "NAME", "low, normal or high",
            OneOf<v1::Priority>({{"low", v1::LOW}, {"normal", v1::NORMAL}, {"high", v1::HIGH}}))
      ->default_str("normal");
  AddOption(command, group, "--fidelity-rows", &flags->fidelity_rows, "N",
            "Have the server measure an approximation's error on N rows per sequence, 0 to 1024",
            Number(0, 1024));
  command->add_flag("--check-finite", flags->check_finite, "Refuse NaN and Inf")->group(group);
  command
      ->add_option("--log-sum-exp", flags->log_sum_exp_file,
                   "Also return each row's log-sum-exp, for merging answers over disjoint keys; "
                   "write it to FILE.npy")
      ->type_name("[FILE.npy]")
      ->expected(0, 1)
      ->group(group);
  AddScoreFlags(command, flags.get());
  command
      ->add_flag("--shared-memory", flags->shared_memory,
                 "Exchange tensors through shared memory with a server on this machine that was "
                 "started with --shared-memory")
      ->group(group);
  AddOption(command, group, "--request-id", &flags->request_id, "TEXT",
            "Id for the server's log and the answer", Utf8());
  auto* no_check =
      command->add_flag("--no-check", flags->no_check, "Do not check the answer")->group("Check");
  command
      ->add_flag("--check", flags->check,
                 "Compare with exact attention computed here in double precision, for as many rows "
                 "as a second allows. Default for random problems")
      ->excludes(no_check)
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
      "  castor attend --lengths 16384 --shared-memory\n"
      "  castor attend --lengths 64 --key-lengths 4096 --heads 32 --kv-heads 8\n"
      "  castor attend --query q.npy --key k.npy --value v.npy --lengths 10,20 --file out.npy\n");
  return [command, flags] {
    CheckFlags(*command, *flags);
    flags->log_sum_exp = command->count("--log-sum-exp") > 0;
    return Run(*flags);
  };
}

}  // namespace castor::cli
