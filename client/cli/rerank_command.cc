// castor rerank: ranks documents for a query.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/encode/encode_input.h"
#include "client/cli/report.h"
#include "client/cli/values.h"

namespace castor::cli {
namespace {

struct RerankFlags {
  CommonFlags common;
  std::string query;
  InputFlags documents;  // texts and text_file alone
  std::string model;
  std::string instruction;
  std::string task;
  int32_t top_n = 0;
  bool no_truncate = false;
};

// Checks the answer against the request: the peer may not be a castor-server.
absl::Status Check(const v1::RerankRequest& request, const v1::RerankResponse& response) {
  const int documents = request.documents_size();
  const int expected = request.top_n() > 0 ? std::min(request.top_n(), documents) : documents;
  std::vector<bool> seen(static_cast<size_t>(documents));
  bool fits = response.results_size() == expected && response.truncated_size() == documents &&
              response.token_counts_size() == documents;
  for (const v1::RankedDocument& row : response.results()) {
    fits = fits && row.index() >= 0 && row.index() < documents && !seen[row.index()];
    if (fits) seen[row.index()] = true;
  }
  if (fits) return absl::OkStatus();
  return absl::DataLossError(
      "the answer does not fit the request: it must rank each document at most once, and give "
      "each document's number of tokens");
}

std::string Table(const v1::RerankResponse& response, double round_trip_us) {
  std::vector<std::vector<std::string>> cells = {{"DOCUMENT", "SCORE", "LOGIT", "TOKENS", "TEXT"}};
  for (const v1::RankedDocument& row : response.results()) {
    cells.push_back(
        {"[" + std::to_string(row.index()) + "]", FormatReal(row.score(), "%.4f"),
         FormatReal(row.logit(), "%.4f"),
         TokensText(response.token_counts(row.index()), response.truncated(row.index())),
         FitText(row.document(), 100)});
  }
  Rows rows = {{"model", response.model()}};
  AppendReports(response.kernel(), response.timing(), response.batch(), response.memory(),
                round_trip_us, &rows);
  return FormatRows(rows) + "\n" + FormatTable(cells);
}

int Run(const RerankFlags& flags) {
  v1::RerankRequest request;
  request.set_model(flags.model);
  request.set_query(flags.query);
  request.set_top_n(flags.top_n);
  request.set_instruction(flags.instruction);
  request.set_task(flags.task);
  request.set_return_documents(true);
  if (flags.no_truncate) request.set_truncate(false);
  InputReader reader(flags.documents);
  while (const auto input = reader.Next()) {
    request.mutable_documents()->MergeFrom(input->request.texts().texts());
  }
  client::Client client = flags.common.Connect();
  const auto begin = std::chrono::steady_clock::now();
  const auto response = client.Rerank(request);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  if (response.ok()) {
    if (const absl::Status fits = Check(request, *response); !fits.ok()) {
      PrintError(std::string(fits.message()));
      return kServerError;
    }
    TruncationCount texts;
    for (const bool cut : response->truncated()) texts.Add(cut);
    if (texts.truncated > 0) {
      WarnOfTruncation(texts.Text("documents (with the query)"), texts.places,
                       "scores do not cover the removed text");
    }
  }
  return Show(response, flags.common,
              [&](const v1::RerankResponse& answer) { return Table(answer, took.count()); });
}

}  // namespace

Runner AddRerankCommand(CLI::App* command) {
  auto flags = std::make_shared<RerankFlags>();
  command->add_option("query", flags->query, "What the documents are ranked for")
      ->type_name("QUERY")
      ->required()
      ->check(Utf8());
  AddTextFlags(command, "documents", "Documents", &flags->documents);
  command->add_option("--top-n", flags->top_n, "Show only the best N documents")
      ->type_name("N")
      ->transform(Number(1, INT32_MAX));
  command
      ->add_option("--instruction", flags->instruction,
                   "What a document must do for the query, for models that take one")
      ->type_name("TEXT")
      ->check(Utf8());
  command->add_option("--task", flags->task, "Add the model's adapter of this name")
      ->type_name("NAME")
      ->check(Utf8());
  command->add_flag("--no-truncate", flags->no_truncate, "Refuse documents that are too long");
  AddModelFlag(command, "Options", &flags->model);
  AddCommonFlags(command, &flags->common, false);
  command->footer(
      "Examples:\n"
      "  castor rerank 'What do beavers build?' 'A dam.' 'A debt.' --model reranker\n"
      "  castor rerank 'What do beavers build?' --text-file found.txt --top-n 10\n");
  return [flags] { return Run(*flags); };
}

}  // namespace castor::cli
