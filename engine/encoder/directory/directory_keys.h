// The keys of a model directory's JSON files: who reads each, and what Castor does with it. A key
// is read here, or refused, unless ignoring it is what the libraries do. Versions:
// transformers 5.24, sentence-transformers 6.2; where older ones differ, these count.
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
  kTransformer,           // sentence_bert_config.json and its older names
  kSentenceTransformers,  // config_sentence_transformers.json
  kPooling,               // a Pooling module's config.json; likewise:
  kDense,
  kLayerNorm,
  kDropout,
  kNormalize,
  kSplade,
  kLogitScore,
  kMultiVectorMask,
};

enum class Use {
  kRead,     // by the code that ConfigReader serves
  kIgnored,  // the libraries' answers do not depend on it
  kRefused,  // unless its value is one that changes nothing
};

// Keys of one file that are alike.
struct Key {
  File file;
  std::string_view names;  // a space between them; or "*_token": every name that ends so
  Use use;
  std::string_view reader;   // the library's class or function that reads it
  std::string_view neutral;  // kRefused: values that change nothing, as JSON, a space between them
  std::string_view why;      // kRefused: the way out
};

// All rows.
std::span<const Key> DirectoryKeys();

// The name's row; null: the libraries know no such key, and ignore it, or refuse it
// (RefusesUnknown).
const Key* FindKey(File file, std::string_view name);

// Whether the library ends with an error at a key that it does not know.
bool RefusesUnknown(File file);

// An error at the first key of `object` that may not be ignored. `path` is its file.
absl::Status CheckKeys(File file, const nlohmann::json& object, const std::string& path);

}  // namespace castor::encoder
