// The text around a query and a document that a model reads to judge the document: a reranker's
// prompt, rendered from its chat template (chat_template.h).
//
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/hf/tokenizer.h"

namespace castor::encoder {

// The places of a request's texts in a template.
inline constexpr char kInstructionPlace[] = "\1i", kQueryPlace[] = "\1q", kDocumentPlace[] = "\1d";

class PairTemplate {
 public:
  // `plain`: for requests without an instruction. `instructed`: for the others. An error unless
  // each has the document once, after the query, and `tokenizer` gives its stretches between
  // special tokens the ids that the whole text has.
  static absl::StatusOr<PairTemplate> Make(const std::string& plain, const std::string& instructed,
                                           const hf::Tokenizer& tokenizer);

  bool takes_instruction() const { return takes_instruction_; }
  int64_t tokens() const { return tokens_; }  // the most of the template itself

  // Appends the ids, and returns whether the document was cut at its end. Nothing else is ever cut:
  // INVALID_FIELD if the rest leaves no room. Other errors as Tokenizer::Encode.
  absl::StatusOr<bool> Encode(const hf::Tokenizer& tokenizer, std::string_view instruction,
                              std::string_view query, std::string_view document,
                              const hf::EncodeOptions& options, std::vector<int64_t>* ids) const;

  // Text up to one of the template's own special tokens, or up to the end.
  struct Stretch {
    std::string text;
    int64_t special = -1;
  };

 private:
  PairTemplate() = default;

  std::vector<Stretch> plain_, instructed_;
  bool takes_instruction_ = false;
  int64_t tokens_ = 0;
};

}  // namespace castor::encoder
