// What the clients read of whoever answers them: castor's answers and errors, castor-load's, and
// the page of /metrics. The first byte says which; whatever the bytes, what a terminal gets to see
// is text.

#include <grpcpp/support/status.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/attend/exact_check.h"
#include "client/cli/encode/encode_answer.h"
#include "client/cli/report.h"
#include "client/error.h"
#include "client/load/send/messages.h"
#include "client/metrics/page.h"
#include "client/tensor.h"
#include "client/top/frame.h"
#include "client/utf8.h"
#include "tests/fuzz/numbers.h"

namespace {

using namespace castor;
using castor::fuzz::NumberReader;

void Require(bool holds) {
  if (!holds) std::abort();
}

void RequireClean(const std::string& text) { Require(client::CleanText(text) == text); }

std::vector<std::string> Names(const std::string& name, size_t count) {
  return std::vector<std::string>(count, name);
}

// A message whose fields agree or do not, as a liar would choose them.
v1::EncodeResponse ReadResponse(NumberReader& in, size_t sequences, size_t spans) {
  v1::EncodeResponse response;
  const uint8_t flags = in.Byte();
  const auto rows = static_cast<int64_t>(in.Byte() % 12);
  const auto width = static_cast<int64_t>(in.Byte() % 5);
  const auto count = [&](size_t right) { return (flags & 1) != 0 ? in.Byte() % 8U : right; };
  const auto fill = [&](auto* field) {
    for (size_t left = count(sequences); left > 0; --left) field->Add(in.Number());
  };
  fill(response.mutable_lengths());
  fill(response.mutable_token_counts());
  for (size_t left = count(sequences); left > 0; --left) response.add_truncated(in.Byte() % 2 != 0);
  for (size_t left = count(spans); left > 0; --left) {
    v1::PooledSpan* const span = response.add_spans();
    span->set_begin(in.Number());
    span->set_end(in.Number());
    span->set_truncated(in.Byte() % 2 != 0);
  }
  if ((flags & 2) != 0) {
    for (size_t left = in.Byte() % 8; left > 0; --left) {
      response.add_labels(std::string(1, static_cast<char>(in.Byte() & 127)));
    }
  }
  if ((flags & 4) != 0) {
    v1::SparseRows* const sparse = response.mutable_sparse();
    fill(sparse->mutable_lengths());
    for (size_t left = in.Byte() % 8; left > 0; --left) sparse->add_indices(in.Raw<int32_t>());
    for (size_t left = in.Byte() % 8; left > 0; --left) sparse->add_values(in.Raw<float>());
    return response;
  }
  std::vector<float> values(static_cast<size_t>(rows * width));
  for (float& value : values) value = in.Raw<float>();
  *response.mutable_output() = client::MakeTensor(values, {rows, width});
  if ((flags & 8) != 0) response.mutable_output()->set_shape(in.Byte() % 2, in.Number());
  if ((flags & 16) != 0) response.mutable_output()->mutable_raw()->resize(in.Byte());
  return response;
}

void Show(const std::vector<v1::EncodeResponse>& responses, size_t sequences, size_t spans) {
  cli::EncodeAnswer answer;
  for (const v1::EncodeResponse& response : responses) {
    const absl::Status status =
        answer.Append(response, Names("input", sequences), Names("span", spans));
    if (!status.ok()) return;
  }
  if (responses.empty()) return;
  RequireClean(answer.Table(1));
  RequireClean(cli::JsonText(answer.Sequences()));
  RequireClean(cli::JsonText(answer.Reports(1)));
  RequireClean(answer.TruncationText());
  Require(answer.sparse() ||
          answer.rows() * answer.width() == static_cast<int64_t>(answer.values().size()));
}

void OfEncode(std::string_view bytes) {
  v1::EncodeResponse response;
  if (bytes.size() < 2 || !response.ParseFromString(std::string(bytes.substr(2)))) return;
  Show({response, response}, bytes[0] % 4U, bytes[1] % 4U);
}

void OfNumbers(const uint8_t* data, size_t size) {
  NumberReader in({data, size});
  const size_t sequences = in.Byte() % 5, spans = in.Byte() % 5;
  std::vector<v1::EncodeResponse> responses;
  for (int left = 1 + in.Byte() % 2; left > 0; --left) {
    responses.push_back(ReadResponse(in, sequences, spans));
  }
  Show(responses, sequences, spans);
}

void OfAttend(std::string_view bytes) {
  v1::AttendResponse response;
  if (!response.ParseFromString(std::string(bytes))) return;
  v1::AttendRequest request;
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    *tensor = client::MakeTensor(std::vector<float>(6, 1), {3, 1, 2});
  }
  request.add_query_lengths(3);
  const std::string mismatch = cli::FindMismatch(request, response);
  RequireClean(mismatch);
  if (mismatch.empty()) static_cast<void>(cli::CheckExactly(request, response, 1 << 20));
  cli::Rows rows;
  cli::AppendReports(response.kernel(), response.timing(), response.batch(), response.memory(), 1,
                     &rows);
  RequireClean(cli::FormatRows(rows));
  response.clear_output();
  RequireClean(cli::JsonText(cli::ToJson(response)));
}

void OfError(std::string_view bytes) {
  const std::string message(bytes.substr(0, bytes.size() / 2));
  const grpc::Status status(grpc::StatusCode::INTERNAL, message,
                            std::string(bytes.substr(bytes.size() / 2)));
  const std::string text = client::ParseError(status).ToString();
  RequireClean(text);
  Require(text.find('\n') == std::string::npos);
}

// Two readings of one server, each half of the bytes.
void OfPage(std::string_view bytes) {
  const client::MetricsPage before = client::ParseMetrics(bytes.substr(0, bytes.size() / 2));
  top::View view;
  view.servers.resize(2, {.name = "a", .rates = top::RatesOf(nullptr, before, 1)});
  view.servers[1].rates =
      top::RatesOf(&before, client::ParseMetrics(bytes.substr(bytes.size() / 2)), 1);
  for (const std::string& line :
       top::FrameLines(view, {.columns = 100, .rows = 0, .color = false})) {
    Require(cli::CellsOf(line) < 100);
    RequireClean(line);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      OfEncode(bytes);
      break;
    case 1:
      OfNumbers(data + 1, size - 1);
      break;
    case 2:
      OfAttend(bytes);
      break;
    case 3:
      OfError(bytes);
      break;
    case 4:
      for (const bool encode : {false, true}) static_cast<void>(load::ReadAnswer(encode, bytes));
      break;
    default:
      OfPage(bytes);
  }
  return 0;
}
