// castor: Castor's command-line client.
#include <CLI/CLI.hpp>

#include "client/cli/command.h"

namespace castor::cli {
namespace {

int Run(int argc, char** argv) {
  CLI::App app("Castor's client: attention and encoder inference over gRPC.\n", "castor");
  app.set_version_flag("--version", "castor " CASTOR_VERSION, "Print the version and exit");
  app.footer(
      "Examples:\n"
      "  castor health\n"
      "  castor attend --lengths 128,77,512 --heads 8 --head-dim 64\n"
      "  castor encode 'A cat sleeps.' 'A kitten naps.' 'Rates rose again.'\n"
      "\n"
      "See castor SUBCOMMAND --help. Exit codes: 0 ok; 1 server or connection; 2 usage, files,\n"
      "output or memory on this machine; 3 the answer failed its check.\n");

  return RunSubcommands(
      app,
      {{"attend", "Run attention on random tensors or .npy files, and check the answer",
        AddAttendCommand},
       {"encode",
        "Encode texts, text pairs, token ids or embeddings with one of the server's models",
        AddEncodeCommand},
       {"rerank", "Rank documents for a query with a cross-encoder or ColBERT", AddRerankCommand},
       {"tokenize", "Show a model's tokens of texts, or the text of token ids", AddTokenizeCommand},
       {"fetch", "Fetch a model's directory from a Hugging Face hub", AddFetchCommand},
       {"models", "List the server's models", AddModelsCommand},
       {"info", "Show the server's devices, kernels, limits and defaults", AddInfoCommand},
       {"health", "Check whether the server is serving (exit code 0 if so)", AddHealthCommand},
       {"top", "Monitor servers live: requests by kernel, queue, latencies, memory",
        AddTopCommand}},
      argc, argv);
}

}  // namespace
}  // namespace castor::cli

int main(int argc, char** argv) { return castor::cli::Main(argc, argv, castor::cli::Run); }
