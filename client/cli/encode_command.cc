// castor encode: embeds its inputs, and shows how similar the results are.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/encode_input.h"
#include "client/cli/kernel_flags.h"
#include "client/cli/report.h"
#include "client/cli/values.h"
#include "client/tensor.h"

namespace castor::cli {
namespace {

constexpr size_t kMaxTableTexts = 20;

struct EncodeFlags {
  CommonFlags common;
  InputFlags input;
  KernelFlags kernel;
  std::string model;
  std::string pooling;
  bool normalize = false;
  bool no_normalize = false;
  bool token_embeddings = false;
  int32_t dimensions = 0;
  bool no_truncate = false;
  size_t batch = 256;
};

// The answers of all requests, joined.
struct Answer {
  std::vector<float> values;  // [rows, width]
  int64_t width = 0;
  std::vector<int64_t> lengths;  // rows of each sequence
  std::vector<int64_t> token_counts;
  std::vector<bool> truncated;
  std::vector<std::string> labels;
  v1::EncodeResponse last;  // its reports
  double round_trip_us = 0;
  size_t requests = 0;

  int64_t rows() const { return width == 0 ? 0 : static_cast<int64_t>(values.size()) / width; }
};

const std::map<std::string, v1::Pooling> kPoolings = {{"mean", v1::MEAN},
                                                      {"cls", v1::CLS},
                                                      {"last", v1::LAST_TOKEN},
                                                      {"max", v1::MAXIMUM},
                                                      {"weighted-mean", v1::WEIGHTED_MEAN}};

void ApplyOptions(const EncodeFlags& flags, v1::EncodeRequest* request) {
  request->set_model(flags.model);
  request->set_output(flags.token_embeddings ? v1::TOKEN_EMBEDDINGS : v1::POOLED);
  if (!flags.pooling.empty()) request->set_pooling(kPoolings.at(flags.pooling));
  if (flags.normalize) request->set_normalize(true);
  if (flags.no_normalize) request->set_normalize(false);
  request->set_dimensions(flags.dimensions);
  if (flags.no_truncate) request->set_truncate(false);
  ApplyKernel(flags.kernel, request);
}

// Adds one response; false when it does not match the request.
bool Append(v1::EncodeResponse response, const std::vector<std::string>& labels, Answer* answer) {
  const auto values = client::ToFloats(response.output());
  const auto sequences = static_cast<int>(labels.size());
  if (!values || response.output().shape_size() != 2 || response.lengths_size() != sequences ||
      response.token_counts_size() != sequences || response.truncated_size() != sequences ||
      (answer->requests > 0 && response.output().shape(1) != answer->width)) {
    return false;
  }
  answer->width = response.output().shape(1);
  answer->values.insert(answer->values.end(), values->begin(), values->end());
  answer->lengths.insert(answer->lengths.end(), response.lengths().begin(),
                         response.lengths().end());
  answer->token_counts.insert(answer->token_counts.end(), response.token_counts().begin(),
                              response.token_counts().end());
  answer->truncated.insert(answer->truncated.end(), response.truncated().begin(),
                           response.truncated().end());
  answer->labels.insert(answer->labels.end(), labels.begin(), labels.end());
  response.clear_output();
  answer->last = std::move(response);
  ++answer->requests;
  return true;
}

double Cosine(const float* a, const float* b, int64_t width) {
  double product = 0, norm_a = 0, norm_b = 0;
  for (int64_t i = 0; i < width; ++i) {
    product += static_cast<double>(a[i]) * b[i];
    norm_a += static_cast<double>(a[i]) * a[i];
    norm_b += static_cast<double>(b[i]) * b[i];
  }
  const double norm = std::sqrt(norm_a * norm_b);
  return norm > 0 ? product / norm : 0;
}

// Every sequence, and its cosine similarity to every other one.
std::string CosineTable(const Answer& answer) {
  std::vector<std::vector<std::string>> cells = {{"", "TOKENS"}};
  const size_t count = answer.labels.size();
  for (size_t i = 0; i < count; ++i) cells[0].push_back("[" + std::to_string(i) + "]");
  cells[0].push_back("COSINE WITH");
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::string> row = {
        "[" + std::to_string(i) + "]",
        std::to_string(answer.token_counts[i]) + (answer.truncated[i] ? " (cut)" : "")};
    for (size_t j = 0; j < count; ++j) {
      row.push_back(FormatReal(Cosine(answer.values.data() + i * answer.width,
                                      answer.values.data() + j * answer.width, answer.width),
                               "%.3f"));
    }
    row.push_back(Shorten(answer.labels[i], 48));
    cells.push_back(std::move(row));
  }
  return FormatTable(cells);
}

std::string Table(const Answer& answer, bool token_embeddings) {
  int64_t tokens = 0;
  for (const int64_t count : answer.token_counts) tokens += count;
  Rows rows = {{"model", answer.last.model()},
               {"output", "[" + std::to_string(answer.rows()) + ", " +
                              std::to_string(answer.width) + "] FLOAT32, " +
                              (token_embeddings ? "one row per token" : "one row per sequence")},
               {"tokens", std::to_string(tokens)}};
  if (answer.requests > 1) {
    rows.emplace_back("requests", std::to_string(answer.requests) + ", the last one below");
  }
  AppendReports(answer.last.kernel(), answer.last.timing(), answer.last.batch(),
                answer.last.memory(), answer.round_trip_us, &rows);
  if (answer.last.has_fidelity()) {
    const v1::CosineFidelity& fidelity = answer.last.fidelity();
    rows.emplace_back("fidelity", "cosine about " + FormatReal(fidelity.cosine(), "%.6f") +
                                      " at least, by " + std::to_string(fidelity.rows()) +
                                      " rows a layer and " +
                                      std::to_string(fidelity.comparisons()) + " comparisons");
  }
  std::string text = FormatRows(rows);
  if (!token_embeddings && answer.labels.size() <= kMaxTableTexts) {
    text += "\n" + CosineTable(answer);
  } else {
    text += "\nThe values are in --output json and --output npy.\n";
  }
  return text;
}

Json AnswerJson(const Answer& answer) {
  Json json = ToJson(answer.last);
  for (const char* repeated : {"lengths", "token_counts", "truncated", "request_id"}) {
    json.erase(repeated);
  }
  json["round_trip_us"] = answer.round_trip_us;
  json["shape"] = {answer.rows(), answer.width};
  Json sequences = Json::array();
  int64_t row = 0;
  for (size_t i = 0; i < answer.labels.size(); ++i) {
    Json rows = Json::array();
    for (int64_t r = 0; r < answer.lengths[i]; ++r, ++row) {
      const float* begin = answer.values.data() + row * answer.width;
      rows.push_back(std::vector<float>(begin, begin + answer.width));
    }
    const bool truncated = answer.truncated[i];
    sequences.push_back({{"input", answer.labels[i]},
                         {"tokens", answer.token_counts[i]},
                         {"truncated", truncated},
                         {"rows", std::move(rows)}});
  }
  json["sequences"] = std::move(sequences);
  return json;
}

int Run(const EncodeFlags& flags) {
  std::vector<Input> inputs = ReadInput(flags.input, flags.batch);
  client::Client client = flags.common.Connect();
  Answer answer;
  for (Input& input : inputs) {
    ApplyOptions(flags, &input.request);
    const auto begin = std::chrono::steady_clock::now();
    auto response = client.Encode(input.request);
    answer.round_trip_us +=
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    if (!response.ok()) return ReportError(response.error(), flags.common);
    if (!Append(*std::move(response), input.Labels(), &answer)) {
      Complain("the answer does not fit the request");
      return kCheckFailed;
    }
  }
  switch (flags.common.format()) {
    case OutputFormat::kJson:
      return WriteText(
          AnswerJson(answer).dump(2, ' ', false, Json::error_handler_t::replace) + "\n",
          flags.common);
    case OutputFormat::kNpy:
      return WriteTensor(client::MakeTensor(answer.values, {answer.rows(), answer.width}),
                         flags.common);
    case OutputFormat::kTable:
      break;
  }
  return WriteText(Table(answer, flags.token_embeddings), flags.common);
}

}  // namespace

Runner AddEncodeCommand(CLI::App* command) {
  auto flags = std::make_shared<EncodeFlags>();
  AddInputFlags(command, &flags->input);
  const std::string group = "Model and output rows";
  command->add_option("--model", flags->model, "The model (default: the server's only one)")
      ->type_name("NAME")
      ->check(Name())
      ->group(group);
  auto* pooling =
      command
          ->add_option("--pooling", flags->pooling,
                       "mean, cls, last, max or weighted-mean (default: the model's own)")
          ->type_name("NAME")
          ->check(CLI::IsMember(kPoolings).description(""))
          ->group(group);
  auto* normalize =
      command->add_flag("--normalize", flags->normalize, "Scale rows to unit length")->group(group);
  command->add_flag("--no-normalize", flags->no_normalize, "Leave rows as they are")
      ->excludes(normalize)
      ->group(group);
  command->add_flag("--token-embeddings", flags->token_embeddings, "One row per token, not pooled")
      ->excludes(pooling)
      ->group(group);
  command->add_option("--dimensions", flags->dimensions, "Keep the first so many of each row")
      ->type_name("N")
      ->transform(Number(1, INT32_MAX))
      ->group(group);
  command->add_flag("--no-truncate", flags->no_truncate, "Refuse texts that are too long")
      ->group(group);
  command->add_option("--batch", flags->batch, "Texts per request")
      ->type_name("N")
      ->transform(Number(1, 4096))
      ->capture_default_str()
      ->group(group);
  AddKernelFlags(command, &flags->kernel);
  AddCommonFlags(command, &flags->common, true);
  command->footer(
      "Examples:\n"
      "  castor encode 'A cat sleeps.' 'A kitten naps.' 'Rates rose again.'\n"
      "  castor encode --text-file corpus.txt --output npy --file vectors.npy\n"
      "  sort -u words.txt | castor encode --output json\n"
      "  castor encode 'Who wrote it?' --pair 'She did.' --pooling cls\n"
      "  castor encode --text-file books.txt --kernel automatic --min-cosine 0.99\n");
  return [flags] { return Run(*flags); };
}

}  // namespace castor::cli
