// The keys of a model directory's JSON files that Castor reads or refuses, and the library's class
// that reads each. Any other key is ignored, as the libraries ignore it or as no answer depends on
// it: directory_keys_test.cc lists those that the libraries write. Versions: transformers 5.24,
// sentence-transformers 6.2; where older versions differ, these count.
//
// Constant; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace castor::encoder {

enum class File {
  kConfig,                // config.json
  kTokenizerConfig,       // tokenizer_config.json
  kSpecialTokensMap,      // special_tokens_map.json
  kModules,               // an entry of modules.json
  kRouter,                // router_config.json
  kTransformer,           // sentence_bert_config.json and its older names
  kSentenceTransformers,  // config_sentence_transformers.json
  kPooling,               // a Pooling module's config.json; likewise:
  kDense,
  kLayerNorm,
  kDropout,
  kNormalize,
  kSplade,
  kSparseStatic,
  kLogitScore,
  kMultiVectorMask,
  kRerank,   // castor_rerank.json
  kAdapter,  // adapter_config.json
  kArtifact,
};

enum class Use {
  kRead,     // by the code that ConfigReader serves
  kRefused,  // unless its value is one that changes nothing
  kIgnored,  // known where unknown keys are refused (RefusesUnknown); no answer depends on it
};

// Keys of one file with the same treatment.
struct Key {
  File file;
  std::string_view names;  // separated by spaces; "*_token": every name with that ending
  Use use;
  std::string_view reader;   // the library's class or function that reads it
  std::string_view neutral;  // kRefused: JSON values that change nothing, separated by spaces
  std::string_view why;      // kRefused: the reason, or the way out
};

// All rows.
std::span<const Key> DirectoryKeys();

// Whether `word` is one of `words`, which are separated by spaces.
bool IsAmong(std::string_view words, std::string_view word);

// The name's row; null if there is none.
const Key* FindKey(File file, std::string_view name);

// Whether the library fails at a key that it does not know.
bool RefusesUnknown(File file);

// An error at the first key of `object` that must not be ignored. `path` is its file.
absl::Status CheckKeys(File file, const nlohmann::json& object, const std::string& path);

}  // namespace castor::encoder
