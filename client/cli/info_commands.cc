// castor models, castor info, castor health.
#include <absl/strings/str_join.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/values.h"

namespace castor::cli {
namespace {

std::string KernelsText(const v1::Model& model) {
  std::vector<std::string> names;
  for (const int kernel : model.kernels()) {
    names.push_back(KernelText(static_cast<v1::KernelName>(kernel)));
  }
  return absl::StrJoin(names, ", ");
}

std::string PromptsText(const v1::Model& model) {
  std::vector<std::string> names;
  for (const v1::Model::Prompt& prompt : model.prompts()) {
    const bool is_default = prompt.name() == model.default_prompt();
    names.push_back(FitText(prompt.name(), 24) + (is_default ? " (default)" : ""));
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

std::string OutputsText(const v1::Model& model) {
  std::vector<std::string> names;
  for (const int output : model.outputs()) {
    names.push_back(v1::EncodeOutput_Name(static_cast<v1::EncodeOutput>(output)));
  }
  return absl::StrJoin(names, ", ");
}

// The labels of a model, shown when it was asked for by name.
std::string LabelsText(const v1::Model& model) {
  constexpr int kMost = 50;
  std::vector<std::string> labels;
  for (const std::string& label : model.labels()) {
    if (labels.size() < kMost) labels.push_back(FitText(label, 40));
  }
  if (labels.empty()) return "";
  const int more = model.labels_size() - static_cast<int>(labels.size());
  return std::string("\nlabels of ") + (model.token_labels() ? "tokens: " : "sequences: ") +
         absl::StrJoin(labels, ", ") + (more > 0 ? ", and " + std::to_string(more) + " more" : "") +
         "\n";
}

std::string Table(const std::vector<v1::Model>& models) {
  std::vector<std::vector<std::string>> cells = {{"NAME", "FAMILY", "DTYPE", "HIDDEN", "LAYERS",
                                                  "HEADS", "MAX TOKENS", "POOLING", "NORMALIZE",
                                                  "WEIGHTS", "PROMPTS", "OUTPUTS", "KERNELS"}};
  for (const v1::Model& model : models) {
    cells.push_back({model.name(), model.family(),
                     model.has_int8() ? "INT8" : v1::DataType_Name(model.dtype()),
                     std::to_string(model.hidden_size()), std::to_string(model.layers()),
                     std::to_string(model.heads()), std::to_string(model.max_tokens()),
                     v1::Pooling_Name(model.pooling()), model.normalize() ? "yes" : "no",
                     FormatBytes(model.weight_bytes()), PromptsText(model), OutputsText(model),
                     KernelsText(model)});
  }
  return FormatTable(cells);
}

// Models of the catalog, with their states.
std::string StatesText(const std::vector<v1::Model>& models) {
  std::vector<std::vector<std::string>> cells = {
      {"NAME", "STATE", "WEIGHTS", "IDLE", "LOADS", "LAST LOAD", "FAILURE"}};
  for (const v1::Model& model : models) {
    const bool idles = model.state() == v1::READY && !model.pinned();
    cells.push_back(
        {model.name(), v1::ModelState_Name(model.state()) + (model.pinned() ? ", pinned" : ""),
         FormatBytes(model.weight_bytes()), idles ? FormatReal(model.idle_seconds(), "%.0f s") : "",
         std::to_string(model.loads()), FormatReal(model.load_seconds(), "%.1f s"),
         FitText(model.failure(), 200)});
  }
  return FormatTable(cells);
}

struct ModelsFlags {
  std::string name;
  bool all = false;
  bool load = false;
  bool replace = false;
  bool unload = false;
};

int RunModels(const CommonFlags& flags, const ModelsFlags& which) {
  const std::string& name = which.name;
  client::Client client = flags.Connect();
  std::vector<v1::Model> models;
  if (which.unload) {
    auto response = client.UnloadModel(name);
    if (!response.ok()) return ReportError(response.error(), flags);
    return WriteText(name + " is unloaded\n", flags);
  }
  if (which.load || which.replace) {
    v1::LoadModelRequest request;
    request.set_name(name);
    request.set_replace(which.replace);
    auto model = client.LoadModel(request);
    if (!model.ok()) return ReportError(model.error(), flags);
    models.push_back(*std::move(model));
  } else if (name.empty()) {
    auto response = client.ListModels({}, which.all);
    if (!response.ok()) return ReportError(response.error(), flags);
    models.assign(response->models().begin(), response->models().end());
  } else {
    auto model = client.GetModel(name);
    if (!model.ok()) return ReportError(model.error(), flags);
    models.push_back(*std::move(model));
  }
  if (flags.format() == OutputFormat::kJson) {
    Json json = Json::array();
    for (const v1::Model& model : models) json.push_back(ToJson(model));
    return WriteText(JsonText(json), flags);
  }
  if (models.empty()) return WriteText("the server has no models\n", flags);
  if (which.all) return WriteText(StatesText(models), flags);
  return WriteText(Table(models) + (name.empty() ? "" : LabelsText(models.front())), flags);
}

std::string Table(const v1::ServerInfo& info) {
  Rows rows = {{"version", info.version() + " (" + info.git_commit() + ")"},
               {"uptime", FormatReal(info.uptime_seconds(), "%.0f s")}};
  for (const v1::Device& device : info.devices()) {
    rows.emplace_back(
        "device",
        device.name() + ": " + device.description() + ", " + FormatBytes(device.memory_bytes()) +
            (device.threads() > 0 ? ", " + std::to_string(device.threads()) + " threads" : "") +
            ", " + device.backend());
  }
  for (const v1::KernelInfo& kernel : info.kernels()) {
    std::vector<std::string> types;
    for (const int dtype : kernel.dtypes()) {
      types.push_back(v1::DataType_Name(static_cast<v1::DataType>(dtype)));
    }
    rows.emplace_back("kernel", KernelText(kernel.name()) + ": " + absl::StrJoin(types, ", ") +
                                    ", " + kernel.backend() +
                                    (kernel.log_sum_exp() ? ", log-sum-exp" : "") +
                                    (kernel.positions() ? ", positions" : "") +
                                    (kernel.softcap() ? ", softcap" : "") +
                                    (kernel.key_bias() ? ", key bias" : ""));
  }
  rows.emplace_back("models", info.models().empty() ? "none" : absl::StrJoin(info.models(), ", "));
  const v1::Limits& limits = info.limits();
  rows.emplace_back("message", FormatBytes(limits.max_message_bytes()) + " at most");
  rows.emplace_back("queue", std::to_string(limits.max_queued_requests()) + " requests, " +
                                 std::to_string(limits.max_queued_tokens()) + " tokens, " +
                                 FormatBytes(limits.max_queued_bytes()) + " at most");
  if (limits.max_device_bytes() > 0) {  // older servers do not report it
    rows.emplace_back("device memory", FormatBytes(limits.max_device_bytes()) + " at most");
  }
  rows.emplace_back("batch", std::to_string(limits.max_batch_requests()) + " requests, " +
                                 std::to_string(limits.max_batch_tokens()) + " tokens at most");
  rows.emplace_back("request", std::to_string(limits.max_sequences()) + " sequences, texts of " +
                                   FormatBytes(limits.max_text_bytes()) + " at most");
  const int64_t regions = limits.max_shared_memory_regions();
  rows.emplace_back("shared memory",
                    regions > 0 ? std::to_string(regions) + " regions at most" : "off");
  return FormatRows(rows);
}

int RunInfo(const CommonFlags& flags) {
  return Show(flags.Connect().GetServerInfo(), flags,
              [](const v1::ServerInfo& info) { return Table(info); });
}

// Asks until the server is SERVING, `wait` has passed, or an answer comes that waiting would not
// change. Asks once if `wait` is 0.
client::Result<client::HealthStatus> AskHealth(const CommonFlags& flags, const std::string& service,
                                               std::chrono::milliseconds wait) {
  using std::chrono::milliseconds;
  constexpr milliseconds kPause{100};
  client::ClientOptions options = flags.options();
  options.retry.max_attempts = wait.count() > 0 ? 1 : 5;  // report the present state
  client::Client client(options);
  const auto end = std::chrono::steady_clock::now() + wait;
  while (true) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    client::CallOptions call;
    if (wait.count() > 0) call.deadline = std::clamp(left, milliseconds(1), options.deadline);
    auto status = client.Health(service, call);
    const bool may_change = status.ok()
                                ? *status != grpc::health::v1::HealthCheckResponse::SERVING
                                : status.error().code == grpc::StatusCode::UNAVAILABLE ||
                                      status.error().code == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (!may_change || std::chrono::steady_clock::now() + kPause >= end) return status;
    client.Wait(kPause);
  }
}

int RunHealth(const CommonFlags& flags, const std::string& service, double wait_seconds) {
  const auto wait = std::chrono::milliseconds(static_cast<int64_t>(wait_seconds * 1000));
  auto status = AskHealth(flags, service, wait);
  if (!status.ok()) return ReportError(status.error(), flags);
  const std::string name = grpc::health::v1::HealthCheckResponse::ServingStatus_Name(*status);
  const bool serving = *status == grpc::health::v1::HealthCheckResponse::SERVING;
  const std::string text = flags.format() == OutputFormat::kJson
                               ? JsonText({{"service", service}, {"status", name}})
                               : name + "\n";
  const int written = WriteText(text, flags);
  return written != kOk || serving ? written : kServerError;
}

}  // namespace

Runner AddModelsCommand(CLI::App* command) {
  auto flags = std::make_shared<CommonFlags>();
  auto which = std::make_shared<ModelsFlags>();
  CLI::Option* const name =
      command->add_option("name", which->name, "Show only this model")->type_name("NAME");
  name->check(Name());
  command->add_flag("--all", which->all, "Show all that may be loaded, with their states")
      ->excludes(name);
  CLI::Option* const load = command->add_flag("--load", which->load, "Load it first")->needs(name);
  CLI::Option* const replace =
      command->add_flag("--replace", which->replace, "Load it again beside itself")->needs(name);
  command->add_flag("--unload", which->unload, "Unload it")
      ->needs(name)
      ->excludes(load)
      ->excludes(replace);
  AddCommonFlags(command, flags.get(), false);
  command->footer("Examples:\n  castor models --output json\n  castor models e5 --load\n");
  return [=] { return RunModels(*flags, *which); };
}

Runner AddInfoCommand(CLI::App* command) {
  auto flags = std::make_shared<CommonFlags>();
  AddCommonFlags(command, flags.get(), false);
  command->footer("Example:\n  castor info --server dns:///castor.example:50051\n");
  return [=] { return RunInfo(*flags); };
}

Runner AddHealthCommand(CLI::App* command) {
  auto flags = std::make_shared<CommonFlags>();
  auto service = std::make_shared<std::string>();
  auto wait = std::make_shared<double>(0);
  command
      ->add_option(
          "service", *service,
          "Service to check: a gRPC service's full name, liveness, readiness, or model/NAME "
          "(default: the whole server)")
      ->type_name("NAME")
      ->check(Utf8());
  AddOption(command, "Connection", "--wait", wait.get(), "TIME",
            "Keep asking until it is serving, for at most this long: 30s, 500ms, 2m, or seconds",
            Seconds(0.001, 86400))
      ->default_str("");
  AddCommonFlags(command, flags.get(), false);
  command->footer("Example:\n  castor health readiness\n  castor health --wait 30s\n");
  return [=] { return RunHealth(*flags, *service, *wait); };
}

}  // namespace castor::cli
