// Renders a reranker's chat template, with the places of a request's texts (pair_template.h) for
// the texts: as transformers' apply_chat_template does with the messages that
// sentence-transformers' CrossEncoder makes of a pair, of the roles "system" (the instruction, if
// any), "query", "document".
//
// The subset of Jinja: output, `set`, `if`, comments and whitespace control; strings, names,
// members, `+`, `is defined`, `is string`, conditions and a few filters. Anything else is an error,
// and so is an expression that would depend on a query or a document. Functions without state.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace castor::encoder {

struct ChatContext {
  bool instruction = false;  // whether there is one
  bool structured = false;   // contents are lists of {"type": "text", "text": ...}, not strings
  std::map<std::string, std::string, std::less<>> variables = {};  // such as "bos_token"
};

// Errors name the line.
absl::StatusOr<std::string> RenderChatTemplate(std::string_view source, const ChatContext& context);

}  // namespace castor::encoder
