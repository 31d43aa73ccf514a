#include "client/cli/encode/encode_output.h"

#include <utility>

#include "client/cli/command.h"
#include "client/cli/report.h"
#include "client/utf8.h"

namespace castor::cli {
namespace {

constexpr std::chrono::milliseconds kRefresh{100};

// A JSON object or array without its brackets.
std::string WithoutBrackets(const Json& json) {
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
  return json_->Append((first ? "{\n\"sequences\": [\n" : ",\n") +
                       WithoutBrackets(answer.Sequences()));
}

int AnswerOutput::Write(EncodeAnswer* answer) {
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

int AnswerOutput::End(const EncodeAnswer& answer, double round_trip_us) {
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

void Progress::Advance(size_t inputs) {
  inputs_ += inputs;
  const Time now = std::chrono::steady_clock::now();
  if (!line_.on() || now < shown_ + kRefresh) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  line_.Show(std::to_string(inputs_) + " texts, " +
             FormatReal(static_cast<double>(inputs_) / seconds, "%.0f") + " per second");
}

}  // namespace castor::cli
