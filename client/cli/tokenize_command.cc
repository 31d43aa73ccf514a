// castor tokenize: shows a model's tokens of texts, or the text of token ids.
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

struct TokenizeFlags {
  CommonFlags common;
  InputFlags input;  // texts and text_file alone
  std::vector<int64_t> decode;
  std::string model;
  bool no_special_tokens = false;
};

std::string TokenTable(const v1::TokenizeResponse& response) {
  std::vector<std::vector<std::string>> cells = {{"TEXT", "ID", "TOKEN", "CHARACTERS"}};
  int at = 0;
  for (int i = 0; i < response.lengths_size(); ++i) {
    for (int64_t t = 0; t < response.lengths(i) && at < response.ids_size(); ++t, ++at) {
      const bool placed = at < response.character_ends_size() && at < response.special_size() &&
                          !response.special(at);
      cells.push_back({std::to_string(i), std::to_string(response.ids(at)),
                       at < response.tokens_size() ? FitText(response.tokens(at), 40) : "",
                       placed ? std::to_string(response.character_begins(at)) + ":" +
                                    std::to_string(response.character_ends(at))
                              : "special"});
    }
  }
  return FormatTable(cells);
}

int Run(const TokenizeFlags& flags) {
  client::Client client = flags.common.Connect();
  if (!flags.decode.empty()) {
    v1::DetokenizeRequest request;
    request.set_model(flags.model);
    request.mutable_tokens()->mutable_ids()->Assign(flags.decode.begin(), flags.decode.end());
    request.set_skip_special_tokens(flags.no_special_tokens);
    return Show(client.Detokenize(request), flags.common, [](const auto& response) {
      return (response.texts().empty() ? "" : CleanText(response.texts(0))) + "\n";
    });
  }
  v1::TokenizeRequest request;
  request.set_model(flags.model);
  request.set_return_tokens(true);
  request.set_add_special_tokens(!flags.no_special_tokens);
  InputReader reader(flags.input);
  while (const auto input = reader.Next()) {
    request.mutable_texts()->mutable_texts()->MergeFrom(input->request.texts().texts());
  }
  return Show(client.Tokenize(request), flags.common, TokenTable);
}

}  // namespace

Runner AddTokenizeCommand(CLI::App* command) {
  auto flags = std::make_shared<TokenizeFlags>();
  const auto [texts, file] = AddTextFlags(command, "texts", "Texts to tokenize", &flags->input);
  command->add_option("--decode", flags->decode, "Print the text of these ids instead")
      ->type_name("ID,ID,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(texts)
      ->excludes(file);
  command->add_flag("--no-special-tokens", flags->no_special_tokens,
                    "Neither add nor decode tokens such as [CLS]");
  AddModelFlag(command, "Options", &flags->model);
  AddCommonFlags(command, &flags->common, false);
  command->footer(
      "Examples:\n"
      "  castor tokenize 'A cat sleeps.'\n"
      "  castor tokenize --decode 101,1037,4937,102\n");
  return [flags] { return Run(*flags); };
}

}  // namespace castor::cli
