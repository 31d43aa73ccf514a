// What a model directory says besides the transformer itself: which of sentence-transformers' model
// types it is, which modules follow the transformer, how its rows are pooled and projected, which
// prompts it knows and how long a text may be. No weights here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/heads/dense.h"
#include "engine/encoder/heads/splade.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

// What a LogitScore module's config.json says: the score is the logit of one token, less another's.
struct LogitScoreModule {
  int64_t yes = 0;
  std::optional<int64_t> no = {};
};

// What the transformer is loaded as.
enum class Task { kFeatures, kSequenceClassification, kFillMask, kTextGeneration };

struct Directory {
  std::string transformer;  // the folder of config.json, weights and tokenizer
  // Whether there is a modules.json, which says what the model is whatever class the transformer
  // was saved as.
  bool has_modules = false;
  Task task = Task::kFeatures;
  // Of a CrossEncoder; empty: the activation that config.json names, or the library's default.
  std::string activation;
  bool pools = false;              // a Pooling module is among them
  bool tokens = false;             // there are modules, and none pools: answers are tokens' rows
  std::vector<Pooling> poolings;   // side by side; empty: kMean
  std::vector<DenseModule> dense;  // of pooled rows, or where nothing pools of all tokens'
  std::optional<SpladeConfig> splade;           // behind a masked language model
  std::optional<LogitScoreModule> logit_score;  // behind a language model
  bool normalize = false;
  bool include_prompt = true;  // whether a prompt's tokens are pooled
  Prompts prompts;             // as the files have them
  // Of texts with the prompts of these names; unset: max_tokens.
  std::optional<int64_t> query_length;
  std::optional<int64_t> document_length;
  int64_t dimensions = 0;             // truncate_dim; 0: all
  std::string similarity;             // similarity_fn_name; empty: none
  std::optional<int64_t> max_tokens;  // max_seq_length
  bool lowercase = false;             // do_lower_case
};

// Reads modules.json and the files beside it; all of them are optional. Unknown modules, and
// unsupported settings that would change the result, are errors.
absl::StatusOr<Directory> ReadDirectory(const std::string& path);

}  // namespace castor::encoder
