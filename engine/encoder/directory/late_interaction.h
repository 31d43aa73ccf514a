// Reads how a late-interaction model (ColBERT: Khattab and Zaharia 2020) treats queries and
// documents, from the files that sentence-transformers, PyLate and Stanford write.
//
// Functions without state; any thread. Errors go to the reader, or name the file.
#pragma once

#include "absl/status/status.h"
#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/directory/directory.h"
#include "engine/encoder/network/body.h"
#include "engine/encoder/text/prepare.h"
#include "engine/encoder/text/tokenizer_files.h"

namespace castor::encoder {

// sentence_bert_config.json: the limits and the padding of queries.
void ReadQueriesAndDocuments(ConfigReader& config, Directory* directory);

// The config.json of a MultiVectorMask module.
void ReadMask(ConfigReader& config, Directory* directory);

// PyLate's top-level keys of config_sentence_transformers.json; `pylate`: with its defaults.
// sentence_bert_config.json, which is read later, takes precedence.
void ReadMultiVector(ConfigReader& config, bool pylate, Directory* directory);

// artifact.metadata of the class HF_ColBERT, which has no modules.json.
absl::Status ReadStanford(Directory* directory);

// Finds the tokens that the files name, and adds them to the rules.
absl::Status SetLateInteraction(const LateInteractionFiles& files, const LoadedTokenizer& tokenizer,
                                const BodyInfo& body, InputRules* rules);

}  // namespace castor::encoder
