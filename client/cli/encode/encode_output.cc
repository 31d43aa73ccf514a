#include "client/cli/encode/encode_output.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/cli/screen.h"
#include "client/cli/values.h"
#include "client/utf8.h"

namespace castor::cli {
namespace {

constexpr std::chrono::milliseconds kRefresh{100};
constexpr size_t kBarCells = 24;

// A JSON object or array without its brackets.
std::string Inside(const Json& json) {
  const std::string text = JsonText(json);  // "[\n ... \n]\n"
  return client::CleanText(text.substr(2, text.size() - 5));
}

}  // namespace

absl::Status AnswerOutput::Open() {
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

absl::Status AnswerOutput::AppendJson(const EncodeAnswer& answer) {
  const bool first = !json_.has_value();
  if (first) {
    if (absl::Status s = Open(); !s.ok()) return s;
  }
  return json_->Append((first ? "{\n\"sequences\": [\n" : ",\n") + Inside(answer.Sequences()));
}

int AnswerOutput::Take(EncodeAnswer* answer) {
  absl::Status status;
  switch (format_) {
    case OutputFormat::kTable:
      if (answer->ShowsRows()) return kOk;
      break;
    case OutputFormat::kNpy:
      if (answer->sparse()) {
        Complain("sparse rows are not a matrix: use --output json");
        return kCheckFailed;
      }
      if (!npy_.has_value()) status = Open();
      if (status.ok()) status = npy_->Append(answer->values());
      break;
    case OutputFormat::kJson:
      status = AppendJson(*answer);
      break;
  }
  answer->Forget();
  return Written(status);
}

int AnswerOutput::End(const EncodeAnswer& answer, double round_trip_us) {
  switch (format_) {
    case OutputFormat::kNpy:
      return Written(npy_->Close(answer.width()));
    case OutputFormat::kJson: {
      const absl::Status status =
          json_->Append("\n],\n" + Inside(answer.Reports(round_trip_us)) + "\n}\n");
      return Written(status.ok() ? json_->Close() : status);
    }
    case OutputFormat::kTable:
      break;
  }
  return WriteText(answer.Table(round_trip_us), flags_);
}

void Progress::Advance(size_t inputs, size_t bytes) {
  inputs_ += inputs;
  bytes_ += bytes;
  const Time now = std::chrono::steady_clock::now();
  if (!line_.on() || now < shown_ + kRefresh) return;
  shown_ = now;
  ScreenLine line(ScreenOf(STDERR_FILENO));
  if (all_bytes_.has_value() && *all_bytes_ > 0) {
    const double share =
        std::min(1.0, static_cast<double>(bytes_) / static_cast<double>(*all_bytes_));
    const auto full = static_cast<size_t>(share * kBarCells);
    line.Add(std::string(full, '#') + std::string(kBarCells - full, '.') +
             FormatReal(share * 100, " %3.0f %%  "));
  }
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  line.Add(std::to_string(inputs_) + " texts, " +
           FormatReal(static_cast<double>(inputs_) / seconds, "%.0f") + " per second");
  line_.Show(line.Take());
}

namespace {

const std::map<std::string, v1::Spans::Unit> kUnits = {{"characters", v1::Spans::CHARACTERS},
                                                       {"bytes", v1::Spans::BYTES},
                                                       {"tokens", v1::Spans::TOKENS}};

bool ParseNumber(std::string_view text, int64_t* number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && rest == end;
}

v1::Spans::Range ParseRange(const std::string& text) {
  const size_t colon = text.find(':');
  int64_t begin = 0, end = 0;
  if (colon == std::string::npos || !ParseNumber(text.substr(0, colon), &begin) ||
      !ParseNumber(text.substr(colon + 1), &end)) {
    throw UsageError("--spans '" + text + "' must look like BEGIN:END");
  }
  v1::Spans::Range range;
  range.set_begin(begin);
  range.set_end(end);
  return range;
}

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

}  // namespace

CLI::Option* AddSpanFlags(CLI::App* command, SpanFlags* flags) {
  const std::string group = "Spans (late chunking)";
  CLI::Option* spans =
      command
          ->add_option("--spans", flags->ranges,
                       "Pool these ranges of each input, one row each, instead of the whole: "
                       "0:120,100:260 (the end is exclusive; they may overlap)")
          ->type_name("BEGIN:END,...")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->group(group);
  AddOption(command, group, "--span-unit", &flags->unit, "UNIT",
            "characters, bytes or tokens (default: characters of texts, tokens of the rest)",
            OneOf(kUnits))
      ->needs(spans);
  return spans;
}

void AddSpans(const SpanFlags& flags, const std::vector<std::string>& sequences,
              v1::EncodeRequest* request, std::vector<std::string>* labels) {
  if (flags.ranges.empty()) return;
  v1::Spans* const spans = request->mutable_spans();
  spans->set_unit(flags.unit);
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (const std::string& text : flags.ranges) {
      v1::Spans::Range* const range = spans->add_ranges();
      *range = ParseRange(text);
      range->set_sequence(static_cast<int32_t>(s));
      labels->push_back("[" + text + "] of " + sequences[s]);
    }
  }
}

void AddDocument(std::string text, const std::string& name, v1::EncodeRequest* request,
                 std::vector<std::string>* labels) {
  if (const auto invalid = FindInvalidUtf8(text)) {
    throw UsageError(name + " is not UTF-8: byte " + std::to_string(*invalid + 1));
  }
  v1::Spans* const spans = request->mutable_spans();
  spans->set_unit(v1::Spans::BYTES);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (!IsBlank(line)) {
      v1::Spans::Range* const range = spans->add_ranges();
      range->set_begin(static_cast<int64_t>(begin));
      range->set_end(static_cast<int64_t>(end));
      labels->emplace_back(line);
    }
    begin = end + 1;
  }
  if (labels->empty()) throw UsageError(name + " contains no text");
  request->mutable_texts()->add_texts(std::move(text));
}

}  // namespace castor::cli
