#include "client/cli/encode/encode_output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "client/cli/report.h"
#include "client/cli/screen.h"
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

Progress::Progress(std::optional<int64_t> bytes)
    : on_(IsScreen(STDERR_FILENO)), all_bytes_(bytes) {}

void Progress::Advance(size_t inputs, size_t bytes) {
  inputs_ += inputs;
  bytes_ += bytes;
  const Time now = std::chrono::steady_clock::now();
  if (!on_ || now < shown_ + kRefresh) return;
  shown_ = now;
  visible_ = true;
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
  std::fprintf(stderr, "\r%s\x1b[K", line.Take().c_str());
  std::fflush(stderr);
}

void Progress::Clear() {
  if (std::exchange(visible_, false)) std::fputs("\r\x1b[K", stderr);
}

}  // namespace castor::cli
