#include <absl/strings/str_split.h>

#include <charconv>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <type_traits>

#include "client/cli/attend/kernel_flags.h"
#include "client/cli/command.h"
#include "client/cli/values.h"
#include "client/file.h"
#include "client/load/commands/command.h"
#include "client/load/report/report.h"
#include "client/load/results/run_json.h"
#include "client/load/workload/parse.h"
#include "client/load/workload/toml_table.h"

namespace castor::load {
namespace {

// Reads --attend and --encode: "128", or "1-512" for uniform lengths.
void SetLengths(const std::string& kind, const std::string& text, toml::table* spec) {
  toml::array ends;
  std::vector<std::string> parts = absl::StrSplit(text, '-');
  for (std::string& part : parts) {
    if (parts.size() > 2 || !cli::Number(int64_t{1}, INT64_MAX)(part).empty()) {
      throw CLI::ValidationError(
          "--" + kind, "'" + text + "' is not a number of tokens or a range such as 1-512");
    }
    ends.push_back(std::stoll(part));
  }
  spec->insert_or_assign("kind", kind);
  if (parts.size() == 1) {
    spec->insert_or_assign("lengths", ends[0]);
  } else {
    spec->insert_or_assign("lengths", toml::table{{"uniform", std::move(ends)}});
  }
}

// Adds an option that sets a key of the workload, whose parser checks it.
template <typename T>
CLI::Option* AddKey(CLI::App* command, const std::string& group, const std::string& flag,
                    toml::table* table, const std::string& type, const std::string& help) {
  const std::string key = flag.substr(flag.rfind("--") + 2);
  CLI::Option* const option = command->add_option_function<T>(
      flag, [=](const T& value) { table->insert_or_assign(key, value); }, help);
  if constexpr (std::is_arithmetic_v<T>) {
    option->transform(cli::Number(std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max()));
  }
  return option->type_name(type)->group(group);
}

// Sets the flags' keys in one of the workload's tables.
void Override(const char* name, const toml::table& flags, toml::table* toml) {
  toml::table* const table = toml->insert(name, toml::table()).first->second.as_table();
  if (table == nullptr) return;  // the file's parser will report it
  for (const auto& [key, value] : flags) table->insert_or_assign(key, value);
}

bool IsClosed(const toml::table& load) {
  return load["arrivals"].value_or(std::string_view()) == "closed";
}

// Reads "2/8".
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
  if (!file.empty()) return ReadText(file);
  std::ostringstream text;
  text << Toml() << "\n";
  return text.str();
}

toml::table TrafficFlags::Toml() const {
  toml::table spec = one_class;
  if (!kernel.empty()) spec.insert_or_assign("kernel", kernel);
  toml::table toml;
  if (!file.empty()) {
    if (!spec.empty()) {
      throw cli::UsageError("--workload: leave out --" + std::string(spec.begin()->first.str()) +
                            ", which the file's classes have");
    }
    toml = ParseToml(ReadText(file), file);
  } else {
    spec.insert("kind", spec.contains("text-file") ? "encode" : "attend");
    spec.insert("name", spec["kind"].value_or(std::string()));
    toml.insert("class", toml::array{std::move(spec)});
  }
  // A flag of one kind of loop replaces the file's load of the other kind.
  toml::table own = load;
  if (own.contains("callers")) own.insert("arrivals", "closed");
  const toml::table* const given = toml["load"].as_table();
  const bool opens = own.contains("rate") || own.contains("arrivals");
  if (given != nullptr && IsClosed(*given) != IsClosed(own) && opens) toml.erase("load");
  Override("load", own, &toml);
  Override("run", run, &toml);
  return toml;
}

Workload TrafficFlags::Read(const toml::table& toml) const {
  Workload workload = ParseWorkload(toml, file.empty() ? "the flags" : file);
  for (const std::string& objective : objectives) {
    for (ClassSpec& spec : workload.classes) {
      try {
        AddGoal(objective, &spec.objective);
      } catch (const std::invalid_argument& error) {
        throw cli::UsageError("--objective: " + std::string(error.what()));
      }
    }
  }
  return workload;
}

DriveOptions TrafficFlags::MakeDriveOptions() const {
  DriveOptions options = drive;
  security.ApplyTo(&options.client);
  if (!verify.empty()) {
    const auto of_answers = ParsePercent(verify);
    if (!of_answers) throw cli::UsageError("--verify: '" + verify + "' is not a share such as 1%");
    options.verify_share = *of_answers;
  }
  if (!share.empty()) ReadShare(share, &options);
  if (begin_at > 0) options.begin = std::chrono::system_clock::from_time_t(begin_at);
  if (options.metrics.size() > options.endpoints.size()) {
    throw cli::UsageError("--metrics: given more often than --server");
  }
  return options;
}

void AddTrafficFlags(CLI::App* command, TrafficFlags* flags, bool searching) {
  const std::string what = "Workload, or one class of requests";
  toml::table* const spec = &flags->one_class;
  const auto text_key = [&](const char* name, const char* type, const char* help) {
    return AddKey<std::string>(command, what, name, spec, type, help);
  };
  const auto whole_key = [&](const char* name, const char* help) {
    AddKey<int64_t>(command, what, name, spec, "N", help);
  };
  const auto lengths = [&](const char* kind, const char* help) {
    return command
        ->add_option_function<std::string>(
            std::string("--") + kind,
            [=](const std::string& text) { SetLengths(kind, text, spec); }, help)
        ->type_name("N|N-N")
        ->group(what);
  };
  auto* file = cli::AddOption(command, what, "-w,--workload", &flags->file, "FILE",
                              "TOML with weighted classes; 'castor-load example' prints one",
                              cli::FileName());
  auto* attend = lengths("attend",
                         "Attention over sequences of this many tokens, or of each length between "
                         "two (default 128)")
                     ->excludes(file);
  lengths("encode", "Texts of this many tokens for an encoder")->excludes(file)->excludes(attend);
  text_key("--texts,--text-file", "FILE", "Texts from this file, one per line")->excludes(attend);
  text_key("--model", "NAME", "The encoder; needed if the server has several");
  whole_key("--sequences", "Sequences, or texts, of each request (default 1)");
  whole_key("--heads", "attend: heads (default 8)");
  whole_key("--head-dim", "attend: dimensions per head (default 64)");
  text_key("--dtype", "NAME", "attend: float32, float16 or bfloat16 (default float32)");
  text_key("--inputs", "NAME",
           "attend: gaussian, or structured (around a few centres, like trained keys)");
  text_key("--deadline", "TIME", "Deadline of each request, from its intended time (default 60s)");
  text_key("--priority", "NAME", "low, normal or high");
  text_key("--tenant", "NAME", "Sent as metadata castor-tenant");
  whole_key("--payloads", "Distinct requests, sent in turn (default 16)");
  command
      ->add_option("--objective", flags->objectives,
                   "Objective for every class: 'p99 <= 50ms', 'errors <= 0.1%'; repeatable")
      ->type_name("GOAL")
      ->allow_extra_args(false)
      ->group(what);
  cli::AddKernelFlag(command, &flags->kernel);

  const std::string when = "Schedule";
  AddKey<std::string>(command, when, "--arrivals", &flags->load, "NAME",
                      searching ? "poisson or constant" : "poisson, constant, or closed");
  if (!searching) {
    AddKey<double>(command, when, "-r,--rate", &flags->load, "X",
                   "Requests per second (default 10)");
    AddKey<int64_t>(command, when, "--callers", &flags->load, "N",
                    "closed: callers that wait for their answers");
    AddKey<std::string>(command, when, "--think-time", &flags->load, "TIME",
                        "closed: callers' pause after an answer");
    cli::AddOption(command, when, "--share", &flags->share, "I/N",
                   "Send every N-th request, from the I-th on (I from 0): N processes make one run",
                   cli::Name());
    cli::AddOption(command, when, "--begin-at", &flags->begin_at, "UNIX-SECONDS",
                   "Unix time at which the run begins, after its warm-up; for shares",
                   cli::Number(int64_t{1}, int64_t{1} << 40));
  }
  AddKey<std::string>(command, when, "-d,--duration", &flags->run, "TIME",
                      "Length of the measurement (default 60s)");
  AddKey<std::string>(command, when, "--warm-up", &flags->run, "TIME",
                      "Length of the warm-up before it, not counted (default 5s)");
  AddKey<int64_t>(command, when, "--max-in-flight", &flags->load, "N",
                  "Requests beyond this many in flight are dropped and counted; 0: no cap");
  AddKey<int64_t>(command, when, "--seed", &flags->run, "N",
                  "Seed of the schedule and of all contents (default 1)");

  const std::string where = "Servers";
  cli::AddOption(
      command, where, "-s,--server", &flags->drive.endpoints, "HOST:PORT",
      "Address of a server, or any gRPC target; repeatable: requests alternate between them",
      cli::Name())
      ->envname("CASTOR_SERVER")
      ->allow_extra_args(false)
      ->default_str("127.0.0.1:50051");
  cli::AddSecurityFlags(command, &flags->security, where);
  auto* metrics =
      cli::AddOption(command, where, "--metrics", &flags->drive.metrics, "HOST:PORT",
                     "Address of each server's metrics (default: the one that the server reports)",
                     cli::Name())
          ->allow_extra_args(false);
  command
      ->add_flag("!--no-metrics", flags->drive.ask_metrics,
                 "Do not compare with the servers' counts")
      ->excludes(metrics)
      ->group(where);
  cli::AddOption(command, where, "--threads", &flags->drive.lanes, "N", "Threads that send",
                 cli::Number(1, 256))
      ->capture_default_str();
  cli::AddOption(command, where, "--connections", &flags->drive.connections, "N",
                 "Connections of each thread to each server", cli::Number(1, 1024))
      ->capture_default_str();

  const std::string truth = "Validity";
  cli::AddOption(command, truth, "--verify", &flags->verify, "X%",
                 "Share of answers to compare with the answer to the same request sent alone",
                 cli::Name());
  cli::AddOption(command, truth, "--min-duration", &flags->rules.min_seconds, "TIME",
                 "A shorter run is INVALID (default 10s)", cli::Seconds(0, 1e6));
  cli::AddOption(command, truth, "--log-requests", &flags->drive.request_log, "FILE",
                 "Write the times of each request, as JSON lines", cli::FileName());
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
