#include "client/load/commands/flags.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "client/cli/attend/kernel_flags.h"
#include "client/cli/command.h"
#include "client/cli/values.h"
#include "client/file.h"
#include "client/load/report/report.h"
#include "client/load/results/run_json.h"
#include "client/load/workload/parse.h"
#include "client/load/workload/toml_table.h"

namespace castor::load {
namespace {

using std::chrono::nanoseconds;

nanoseconds Time(const std::string& flag, const std::string& text) {
  const auto time = ParseDuration(text);
  if (!time) throw cli::UsageError(flag + ": '" + text + "' is not a duration such as 50ms or 2s");
  return *time;
}

double Share(const std::string& flag, const std::string& text) {
  const auto share = ParsePercent(text);
  if (!share) throw cli::UsageError(flag + ": '" + text + "' is not a share such as 1%");
  return *share;
}

// "128", or "1-512": each length as often.
Length LengthOf(const std::string& flag, const std::string& text) {
  const auto number = [&](const std::string& part) {
    const bool digits =
        !part.empty() && part.size() < 9 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const int64_t value = digits ? std::stoll(part) : 0;
    if (value < 1 || value > (int64_t{1} << 20)) {
      throw cli::UsageError(flag + ": '" + text +
                            "' is not a number of tokens (1 to 1048576) or a range such as 1-512");
    }
    return value;
  };
  const size_t dash = text.find('-');
  if (dash == std::string::npos) return FixedLength{number(text)};
  const UniformLength range{number(text.substr(0, dash)), number(text.substr(dash + 1))};
  if (range.least > range.greatest) throw cli::UsageError(flag + ": '" + text + "' is empty");
  return range;
}

v1::DataType TypeOf(const std::string& name) {
  if (name == "float16") return v1::FLOAT16;
  return name == "bfloat16" ? v1::BFLOAT16 : v1::FLOAT32;
}

v1::Priority PriorityOf(const std::string& name) {
  if (name == "low") return v1::LOW;
  if (name == "high") return v1::HIGH;
  return name == "normal" ? v1::NORMAL : v1::PRIORITY_DEFAULT;
}

// The one class of a workload that no file describes.
ClassSpec ClassOf(const TrafficFlags& flags) {
  ClassSpec spec;
  if (!flags.encode.empty() || !flags.text_file.empty()) {
    EncodeSpec encode = {
        .model = flags.model, .text_file = flags.text_file, .kernel = flags.kernel};
    if (!flags.encode.empty()) encode.lengths = LengthOf("--encode", flags.encode);
    encode.sequences = FixedLength{flags.sequences};
    spec.name = "encode";
    spec.call = std::move(encode);
  } else {
    AttendSpec attend = {.heads = flags.heads,
                         .head_dim = flags.head_dim,
                         .dtype = TypeOf(flags.dtype),
                         .kernel = flags.kernel};
    if (!flags.attend.empty()) attend.lengths = LengthOf("--attend", flags.attend);
    attend.structured = flags.inputs == "structured";
    attend.sequences = FixedLength{flags.sequences};
    spec.name = "attend";
    spec.call = std::move(attend);
  }
  if (!flags.deadline.empty()) spec.deadline = Time("--deadline", flags.deadline);
  spec.tenant = flags.tenant;
  spec.priority = PriorityOf(flags.priority);
  if (flags.payloads > 0) spec.payloads = flags.payloads;
  return spec;
}

// What the flags say of the load, over what `workload` has.
void SetLoad(const TrafficFlags& flags, Workload& workload) {
  if (!flags.duration.empty()) workload.duration = Time("--duration", flags.duration);
  if (!flags.warm_up.empty()) workload.warm_up = Time("--warm-up", flags.warm_up);
  if (workload.duration <= nanoseconds(0)) throw cli::UsageError("--duration must be above 0");
  if (flags.seed) workload.seed = *flags.seed;
  if (flags.arrivals == "closed" || (flags.arrivals.empty() && flags.callers > 0)) {
    ClosedLoop closed;
    if (const auto* given = std::get_if<ClosedLoop>(&workload.load)) closed = *given;
    if (flags.callers > 0) closed.callers = flags.callers;
    if (!flags.think_time.empty()) closed.think_time = Time("--think-time", flags.think_time);
    workload.load = closed;
  } else if (!flags.arrivals.empty() || flags.rate > 0) {
    OpenLoop open;
    if (const auto* given = std::get_if<OpenLoop>(&workload.load)) open = *given;
    if (!flags.arrivals.empty()) open.constant = flags.arrivals == "constant";
    if (flags.rate > 0) open.rate = flags.rate;
    workload.load = open;
  }
  auto* open = std::get_if<OpenLoop>(&workload.load);
  if (open != nullptr && flags.max_in_flight >= 0) open->max_in_flight = flags.max_in_flight;
}

// "2/8"
void ReadShare(const std::string& text, DriveOptions* options) {
  const char* const end = text.data() + text.size();
  const auto [slash, error] = std::from_chars(text.data(), end, options->share);
  if (error == std::errc() && slash != end && *slash == '/') {
    const auto [rest, also] = std::from_chars(slash + 1, end, options->shares);
    const bool fits = options->share >= 0 && options->share < options->shares;
    if (also == std::errc() && rest == end && fits && options->shares <= 4096) return;
  }
  throw cli::UsageError("--share: '" + text +
                        "' is not a share I/N with I from 0 to N - 1, such as 0/4");
}

}  // namespace

std::string TrafficFlags::WorkloadText() const {
  return workload.empty() ? "" : ReadText(workload);
}

std::chrono::nanoseconds PositiveTime(const std::string& flag, const std::string& text) {
  const nanoseconds time = Time(flag, text);
  if (time.count() == 0) throw cli::UsageError(flag + " must be above 0");
  return time;
}

Workload TrafficFlags::MakeWorkload() const {
  Workload made;
  if (!workload.empty()) {
    made = ParseWorkload(ReadText(workload), workload);
  } else {
    made.classes.push_back(ClassOf(*this));
  }
  SetLoad(*this, made);
  for (const std::string& objective : objectives) {
    for (ClassSpec& spec : made.classes) {
      try {
        AddGoal(objective, &spec.objective);
      } catch (const std::invalid_argument& error) {
        throw cli::UsageError("--objective: " + std::string(error.what()));
      }
    }
  }
  return made;
}

DriveOptions TrafficFlags::MakeDriveOptions() const {
  DriveOptions options = {.endpoints = servers,
                          .metrics = metrics,
                          .ask_metrics = ask_metrics,
                          .lanes = threads,
                          .connections = connections,
                          .request_log = request_log};
  security.SetOn(&options.client);
  if (!verify.empty()) options.verify_share = Share("--verify", verify);
  if (!share.empty()) ReadShare(share, &options);
  if (begin_at > 0) options.begin = std::chrono::system_clock::from_time_t(begin_at);
  if (metrics.size() > servers.size()) {
    throw cli::UsageError("--metrics: there are more of these than of --server");
  }
  return options;
}

Rules TrafficFlags::MakeRules() const {
  Rules rules;
  if (!min_duration.empty()) {
    rules.min_seconds = std::chrono::duration<double>(Time("--min-duration", min_duration)).count();
  }
  return rules;
}

void AddTrafficFlags(CLI::App* command, TrafficFlags* flags, bool searching) {
  const auto text = [command](const char* name, std::string* value, const char* help,
                              const char* type, const std::string& group) {
    return cli::AddOption(command, group, name, value, type, help, cli::Name());
  };
  const auto whole = [command](const char* name, int64_t* value, const char* help, int64_t least,
                               int64_t most, const std::string& group) {
    return cli::AddOption(command, group, name, value, "N", help, cli::Number(least, most));
  };
  const auto one_of = [command](const char* name, std::string* value, const char* help,
                                std::vector<std::string> names, const std::string& group) {
    return cli::AddOption(command, group, name, value, "NAME", help,
                          CLI::IsMember(std::move(names)).description(""));
  };

  const std::string what = "What is sent: a workload, or one class";
  auto* file = text("-w,--workload", &flags->workload,
                    "TOML with weighted classes; 'castor-load example' prints one", "FILE", what);
  auto* attend = text("--attend", &flags->attend,
                      "Attention over sequences of this many tokens, or of each length between two",
                      "N|N-N", what)
                     ->excludes(file);
  text("--encode", &flags->encode, "Texts of this many tokens for an encoder", "N|N-N", what)
      ->excludes(file)
      ->excludes(attend);
  text("--texts", &flags->text_file, "Texts from this file, one per line", "FILE", what)
      ->excludes(file)
      ->excludes(attend);
  text("--model", &flags->model, "The encoder; needed if the server has several", "NAME", what);
  whole("--sequences", &flags->sequences, "Sequences, or texts, of each request", 1, 4096, what)
      ->capture_default_str();
  whole("--heads", &flags->heads, "attend: heads", 1, 1024, what)->capture_default_str();
  whole("--head-dim", &flags->head_dim, "attend: dimensions per head", 1, 1024, what)
      ->capture_default_str();
  one_of("--dtype", &flags->dtype, "attend: float32, float16 or bfloat16",
         {"float32", "float16", "bfloat16"}, what)
      ->capture_default_str();
  one_of("--inputs", &flags->inputs,
         "attend: gaussian, or structured (around a few centres, like trained keys)",
         {"gaussian", "structured"}, what)
      ->capture_default_str();
  text("--deadline", &flags->deadline,
       "Deadline of each request, from its intended time (default 60s)", "TIME", what);
  one_of("--priority", &flags->priority, "low, normal or high", {"low", "normal", "high"}, what);
  text("--tenant", &flags->tenant, "Sent as metadata castor-tenant", "NAME", what);
  whole("--payloads", &flags->payloads, "Distinct requests, sent in turn (default 16)", 1, 65536,
        what);
  command
      ->add_option("--objective", flags->objectives,
                   "Objective for every class: 'p99 <= 50ms', 'errors <= 0.1%'; repeatable")
      ->type_name("GOAL")
      ->allow_extra_args(false)
      ->group(what);
  cli::AddKernelFlag(command, &flags->kernel);

  const std::string when = "When";
  one_of("--arrivals", &flags->arrivals,
         searching ? "poisson or constant" : "poisson, constant, or closed",
         searching ? std::vector<std::string>{"poisson", "constant"}
                   : std::vector<std::string>{"poisson", "constant", "closed"},
         when);
  if (!searching) {
    cli::AddOption(command, when, "-r,--rate", &flags->rate, "X", "Requests per second",
                   cli::Number(0.001, 1e7));
    whole("--callers", &flags->callers, "closed: callers that wait for their answers", 1, 1 << 20,
          when);
    text("--think-time", &flags->think_time, "closed: callers' pause after an answer", "TIME",
         when);
    text("--share", &flags->share,
         "Send every N-th request, from the I-th on (I from 0): N processes make one run", "I/N",
         when);
    whole("--begin-at", &flags->begin_at,
          "Unix time at which the run begins, after its warm-up; for shares", 1, int64_t{1} << 40,
          when)
        ->type_name("UNIX-SECONDS");
  }
  text("-d,--duration", &flags->duration, "Length of the measurement (default 60s)", "TIME", when);
  text("--warm-up", &flags->warm_up, "Length of the warm-up before it, not counted (default 5s)",
       "TIME", when);
  whole("--max-in-flight", &flags->max_in_flight,
        "Requests beyond this many in flight are dropped and counted; 0: no cap", 0, 1 << 20, when);
  cli::AddOption(command, when, "--seed", &flags->seed, "N",
                 "Seed of the schedule and of all contents (default 1)",
                 cli::Number(uint64_t{0}, UINT64_MAX));

  const std::string where = "Where to";
  cli::AddOption(
      command, where, "-s,--server", &flags->servers, "HOST:PORT",
      "Address of a server, or any gRPC target; repeatable: requests alternate between them",
      cli::Name())
      ->envname("CASTOR_SERVER")
      ->allow_extra_args(false)
      ->default_str("127.0.0.1:50051");
  cli::AddSecurityFlags(command, &flags->security, where);
  auto* metrics =
      cli::AddOption(command, where, "--metrics", &flags->metrics, "HOST:PORT",
                     "Address of each server's metrics (default: the one that the server reports)",
                     cli::Name())
          ->allow_extra_args(false);
  command->add_flag("!--no-metrics", flags->ask_metrics, "Do not compare with the servers' counts")
      ->excludes(metrics)
      ->group(where);
  cli::AddOption(command, where, "--threads", &flags->threads, "N", "Threads that send",
                 cli::Number(1, 256))
      ->capture_default_str();
  cli::AddOption(command, where, "--connections", &flags->connections, "N",
                 "Connections of each thread to each server", cli::Number(1, 1024))
      ->capture_default_str();

  const std::string truth = "What to believe";
  text("--verify", &flags->verify, "Share of answers to compare with the same request sent alone",
       "X%", truth);
  text("--min-duration", &flags->min_duration, "A shorter run is INVALID (default 10s)", "TIME",
       truth);
  text("--log-requests", &flags->request_log, "Write the times of each request, as JSON lines",
       "FILE", truth);
}

void OutputFlags::Write(const RunData& run, const Verdict& verdict) const {
  const auto write = [](const std::string& path, const std::string& content) {
    const absl::Status status = client::WriteFile(path, {content});
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  };
  if (!json.empty()) write(json, FormatRun(run, verdict));
  if (!html.empty()) write(html, ReportHtml(run, verdict));
}

void AddOutputFlags(CLI::App* command, OutputFlags* flags) {
  const std::string group = "Results";
  const auto file = [&](const char* name, std::string* path, const char* help) {
    cli::AddOption(command, group, name, path, "FILE", help, cli::FileName());
  };
  file("--json", &flags->json, "Write the run as JSON, for compare and report");
  file("--html", &flags->html, "Write a self-contained HTML report");
}

}  // namespace castor::load
