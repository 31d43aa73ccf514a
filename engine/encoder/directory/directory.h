// A model directory without its transformer and weights: the sentence-transformers model type, the
// modules that follow the transformer, pooling and projection, prompts, and the length of texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/splade.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

// A LogitScore module as its config.json describes it: the score is the logit of one token, less
// another's.
struct LogitScoreModule {
  int64_t yes = 0;
  std::optional<int64_t> no = {};
};

// castor_rerank.json: the tokens by which a language model without LogitScore answers.
struct RerankTokens {
  std::string yes, no;  // `no` may be empty
};

// The rules for queries and documents of a late-interaction model, as its files have them.
struct LateInteractionFiles {
  struct Expansion {  // of queries, which are padded to `length` tokens
    int64_t length = 32;
    bool cuts = true;        // longer queries are cut to it
    bool attends = false;    // whether tokens attend to the padding
    std::string token = {};  // empty: the tokenizer's mask token, else its end-of-text token
    std::string key = {};    // where it is set: file and key, for errors
  };
  std::optional<Expansion> expansion;
  std::vector<std::string> skiplist;  // tokens whose rows are dropped
  std::vector<std::string> skiplist_tasks = {"document"};
  // Tokens of the vocabulary that begin prompts and may be unknown to tokenizer.json as tokens.
  std::vector<std::string> prefixes;
  bool masks = false;  // there is a MultiVectorMask module, or the format implies it
};

// The task that the transformer is loaded for.
enum class Task { kFeatures, kSequenceClassification, kFillMask, kTextGeneration };

struct Directory {
  std::string transformer;  // the folder of config.json, weights and tokenizer
  // Whether there is a modules.json. It decides what the model is, whatever class the transformer
  // was saved as.
  bool has_modules = false;
  // The first module is the publisher's own Python code. Castor implements that of
  // jina-embeddings-v3 and -v5, and refuses others.
  bool custom = false;
  Task task = Task::kFeatures;
  bool lookup = false;  // a StaticEmbedding in place of a transformer
  bool weighs = false;  // a SparseStaticEmbedding instead: a weight for each token
  // A Router's routes; one is looked up, in place of the pipeline that the rest describes.
  std::vector<std::string> routes;
  std::shared_ptr<const Directory> lookup_route;
  std::string lookup_task;
  bool lookup_by_default = false;
  // A CrossEncoder's activation; empty: the one that config.json names, or the library's default.
  std::string activation;
  bool pools = false;                  // there is a Pooling module
  bool tokens = false;                 // there are modules without Pooling: answers are token rows
  std::vector<Pooling> poolings;       // concatenated; empty: kMean
  std::vector<DenseModule> dense;      // of pooled rows, or of token rows without Pooling
  std::optional<SpladeConfig> splade;  // after a masked language model
  std::optional<LogitScoreModule> logit_score;  // after a language model
  std::optional<RerankTokens> tokens_of_answers;
  std::string message_format;  // of a chat template: "flat", "structured"; empty: does not apply
  bool normalize = false;
  bool include_prompt = true;  // whether a prompt's tokens are pooled
  Prompts prompts;             // as the files have them
  // Token limits of texts with the prompt "query" or "document"; unset: max_tokens.
  std::optional<int64_t> query_length;
  std::optional<int64_t> document_length;
  LateInteractionFiles late_interaction;
  int64_t dimensions = 0;             // truncate_dim; 0: all
  std::string similarity;             // similarity_fn_name; empty: none
  std::optional<int64_t> max_tokens;  // max_seq_length
  bool lowercase = false;             // do_lower_case
};

// Reads modules.json and the files that belong to it; all are optional. Unknown modules are errors,
// and so are unsupported settings that would change the result.
absl::StatusOr<Directory> ReadDirectory(const std::string& path);

}  // namespace castor::encoder
