// castor encode: sends its inputs through a model, and shows how similar the rows are, which labels
// have which scores, or which words weigh most.
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/cli/attend/kernel_flags.h"
#include "client/cli/command.h"
#include "client/cli/encode/encode_answer.h"
#include "client/cli/encode/encode_input.h"
#include "client/cli/report.h"
#include "client/cli/screen.h"
#include "client/cli/values.h"
#include "client/file.h"
#include "client/npy.h"
#include "client/utf8.h"

namespace castor::cli {
namespace {

struct EncodeFlags {
  CommonFlags common;
  InputFlags input;
  std::string kernel;
  std::string model;
  v1::Pooling pooling = v1::POOLING_DEFAULT;
  bool normalize = false;
  bool no_normalize = false;
  v1::EncodeOutput output_kind = v1::ENCODE_OUTPUT_DEFAULT;
  std::string task;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_text;
  bool no_prompt = false;
  int32_t dimensions = 0;
  bool no_truncate = false;
  v1::TruncationSide truncation_side = v1::TRUNCATION_SIDE_DEFAULT;
  int32_t max_tokens = 0;
};

const std::map<std::string, v1::Pooling> kPoolings = {{"mean", v1::MEAN},
                                                      {"cls", v1::CLS},
                                                      {"last", v1::LAST_TOKEN},
                                                      {"max", v1::MAXIMUM},
                                                      {"weighted-mean", v1::WEIGHTED_MEAN},
                                                      {"mean-sqrt-length", v1::MEAN_SQRT_LENGTH}};

const std::map<std::string, v1::TruncationSide> kSides = {{"left", v1::LEFT}, {"right", v1::RIGHT}};

const std::map<std::string, v1::EncodeOutput> kOutputs = {
    {"pooled", v1::POOLED},
    {"token-embeddings", v1::TOKEN_EMBEDDINGS},
    {"logits", v1::LOGITS},
    {"scores", v1::SCORES},
    {"sparse", v1::SPARSE}};

void ApplyOptions(const EncodeFlags& flags, v1::EncodeRequest* request) {
  request->set_model(flags.model);
  request->set_output(flags.output_kind);
  request->set_pooling(flags.pooling);
  if (flags.normalize) request->set_normalize(true);
  if (flags.no_normalize) request->set_normalize(false);
  request->set_dimensions(flags.dimensions);
  if (flags.no_truncate) request->set_truncate(false);
  request->set_truncation_side(flags.truncation_side);
  request->set_max_tokens(flags.max_tokens);
  request->set_task(flags.task);
  if (flags.prompt.has_value()) request->set_prompt_name(*flags.prompt);
  if (flags.prompt_text.has_value()) request->set_prompt(*flags.prompt_text);
  if (flags.no_prompt) request->set_prompt_name("");
  ApplyKernel(flags.kernel, request);
}

constexpr std::chrono::milliseconds kRefresh{100};

// A JSON object or array without its brackets.
std::string WithoutBrackets(const Json& json) {
  const std::string text = JsonText(json);  // "[\n ... \n]\n"
  return client::CleanText(text.substr(2, text.size() - 5));
}

// Writes rows of .npy and JSON as they come, and a table at the end.
class AnswerOutput {
 public:
  explicit AnswerOutput(const CommonFlags& flags) : flags_(flags), format_(flags.format()) {}

  // Write the rows added since the last call; End also writes the totals. Both report errors and
  // return the exit code.
  int Write(EncodeAnswer* answer) {
    absl::Status status;
    switch (format_) {
      case OutputFormat::kTable:
        if (answer->ShowsRows()) return kOk;
        break;
      case OutputFormat::kNpy:
        if (answer->sparse()) {
          PrintError("sparse rows are not a matrix: use --output json");
          return kCheckFailed;
        }
        if (!npy_.has_value()) status = Open();
        if (status.ok()) status = npy_->Append(answer->values());
        break;
      case OutputFormat::kJson:
        status = AppendJson(*answer);
        break;
    }
    answer->DiscardRows();
    return ReportWriteError(status);
  }
  int End(const EncodeAnswer& answer, double round_trip_us) {
    switch (format_) {
      case OutputFormat::kNpy:
        return ReportWriteError(npy_->Close(answer.width()));
      case OutputFormat::kJson: {
        const absl::Status status =
            json_->Append("\n],\n" + WithoutBrackets(answer.Reports(round_trip_us)) + "\n}\n");
        return ReportWriteError(status.ok() ? json_->Close() : status);
      }
      case OutputFormat::kTable:
        break;
    }
    return WriteText(answer.Table(round_trip_us), flags_);
  }

 private:
  absl::Status Open() {
    if (format_ == OutputFormat::kNpy) {
      auto file = client::NpyRows::Create(flags_.file);
      if (file.ok()) npy_.emplace(*std::move(file));
      return file.status();
    }
    if (flags_.file.empty()) {
      json_.emplace(client::OutputFile::StandardOutput());
    } else {
      auto file = client::OutputFile::Create(flags_.file);
      if (!file.ok()) return file.status();
      json_.emplace(*std::move(file));
    }
    return absl::OkStatus();
  }

  absl::Status AppendJson(const EncodeAnswer& answer) {
    const bool first = !json_.has_value();
    if (first) {
      if (absl::Status s = Open(); !s.ok()) return s;
    }
    return json_->Append((first ? "{\n\"sequences\": [\n" : ",\n") +
                         WithoutBrackets(answer.Sequences()));
  }

  const CommonFlags& flags_;
  const OutputFormat format_;
  std::optional<client::NpyRows> npy_;
  std::optional<client::OutputFile> json_;
};

// The number of inputs answered so far and their rate, on a line of the terminal.
class Progress {
 public:
  void Advance(size_t inputs) {
    inputs_ += inputs;
    const Time now = std::chrono::steady_clock::now();
    if (!line_.on() || now < shown_ + kRefresh) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    line_.Show(std::to_string(inputs_) + " texts, " +
               FormatReal(static_cast<double>(inputs_) / seconds, "%.0f") + " per second");
  }
  void Clear() { line_.Clear(); }

 private:
  using Time = std::chrono::steady_clock::time_point;

  StatusLine line_;
  const Time begun_ = std::chrono::steady_clock::now();
  Time shown_;
  size_t inputs_ = 0;
};

// Requests in flight: one computes, one waits, and two travel.
constexpr size_t kWindow = 4;

int Run(const EncodeFlags& flags) {
  InputReader inputs(flags.input);
  std::optional<Input> next = inputs.Next();
  client::Client client = flags.common.Connect();
  std::deque<Input> asked;  // the requests in flight
  const auto stream = client.EncodeStream(
      [&](v1::EncodeRequest* request) {
        if (!next) return false;
        ApplyOptions(flags, &next->request);
        *request = std::exchange(next->request, {});
        asked.push_back(*std::exchange(next, std::nullopt));
        next = inputs.Next();
        return true;
      },
      {.window = kWindow});
  EncodeAnswer answer;
  AnswerOutput output(flags.common);
  Progress progress;
  const auto begin = std::chrono::steady_clock::now();
  while (auto response = stream->Next()) {
    const Input input = std::move(asked.front());
    asked.pop_front();
    if (!response->ok()) {
      progress.Clear();
      return ReportError(response->error(), flags.common);
    }
    const absl::Status fits = answer.Append(**std::move(response), input.labels, input.span_labels);
    if (!fits.ok()) {
      progress.Clear();
      PrintError(std::string(fits.message()));
      return kServerError;
    }
    if (const int failed = output.Write(&answer); failed != kOk) return failed;
    if (next) progress.Advance(input.labels.size());
  }
  progress.Clear();
  const double elapsed_us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  if (const std::string cut = answer.TruncationText(); !cut.empty()) {
    WarnOfTruncation(cut, answer.TruncatedPlaces(),
                     "rows do not cover the removed text, and are zero where no text is left");
  }
  return output.End(answer, elapsed_us);
}

}  // namespace

Runner AddEncodeCommand(CLI::App* command) {
  auto flags = std::make_shared<EncodeFlags>();
  AddInputFlags(command, &flags->input);
  const std::string group = "Model and output rows";
  AddModelFlag(command, group, &flags->model);
  AddOption(command, group, "--pooling", &flags->pooling, "NAME",
            "mean, cls, last, max, weighted-mean or mean-sqrt-length (default: the "
            "model's own)",
            OneOf(kPoolings));
  auto* normalize =
      command->add_flag("--normalize", flags->normalize, "Normalize rows to unit length")
          ->group(group);
  command->add_flag("--no-normalize", flags->no_normalize, "Leave rows as they are")
      ->excludes(normalize)
      ->group(group);
  AddOption(command, group, "--output-kind", &flags->output_kind, "NAME",
            "pooled, token-embeddings, logits, scores or sparse (default: the "
            "model's own). If scores tie at 1, rank by logits",
            OneOf(kOutputs));
  AddOption(command, group, "--task", &flags->task, "NAME",
            "Add the model's adapter of this name, and its prompt of this name ('castor models "
            "--output json' lists them)",
            Utf8());
  CLI::Option* prompt =
      AddOption(command, group, "--prompt", &flags->prompt, "NAME",
                "Put the model's prompt of this name before every text ('castor models "
                "--output json' lists them; default: the model's default prompt)",
                Utf8());
  CLI::Option* prompt_text = AddOption(command, group, "--prompt-text", &flags->prompt_text, "TEXT",
                                       "Put this before every text instead", Utf8())
                                 ->excludes(prompt);
  command->add_flag("--no-prompt", flags->no_prompt, "Put no prompt before the texts")
      ->excludes(prompt)
      ->excludes(prompt_text)
      ->group(group);
  AddOption(command, group, "--dimensions", &flags->dimensions, "N",
            "Keep only the first N dimensions of each row", Number(1, INT32_MAX));
  AddOption(command, group, "--max-tokens", &flags->max_tokens, "N",
            "Maximum tokens per text (default: the model's maximum)", Number(1, INT32_MAX));
  CLI::Option* side = AddOption(
      command, group, "--truncation-side", &flags->truncation_side, "SIDE",
      "left or right: the side where long texts are cut (default: the model's own)", OneOf(kSides));
  command->add_flag("--no-truncate", flags->no_truncate, "Refuse texts that are too long")
      ->excludes(side)
      ->group(group);
  AddKernelFlag(command, &flags->kernel);
  AddCommonFlags(command, &flags->common, true);
  command->footer(
      "Examples:\n"
      "  castor encode 'A cat sleeps.' 'A kitten naps.' 'Rates rose again.'\n"
      "  castor encode --text-file corpus.txt --file vectors.npy\n"
      "  sort -u words.txt | castor encode --output json\n"
      "  castor encode 'Who wrote it?' --pair 'She did.' --output-kind scores\n"
      "  castor encode --document report.txt --file chunks.json\n"
      "  castor encode 'A cat sleeps. It purrs.' --spans 0:13,14:23\n"
      "  castor encode 'How do beavers build?' --prompt query\n");
  return [flags] { return Run(*flags); };
}

}  // namespace castor::cli
