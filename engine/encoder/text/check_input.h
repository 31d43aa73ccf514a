#pragma once

#include <cstdint>
#include <optional>

namespace castor::encoder {

// The rules that turn texts and ids into the rows of a model's body. One of the three parts of a
// model, beside its body (body.h) and its head (head.h).
struct InputRules {
  int64_t vocabulary = 0;      // ids are below it
  int64_t types = 1;           // type ids are below it; with one type they are all zero
  bool text_types = true;      // whether texts have the tokenizer's type ids, or all zero
  bool cut_left = false;       // where longer sequences are cut, unless a request says
  int64_t max_tokens = 0;      // of one sequence, special tokens included
  int64_t first_position = 0;  // of every sequence's first token: 0 for BERT, 2 for RoBERTa
  // An id that stands before the first position wherever it comes, and moves no other token:
  // RoBERTa counts positions so, in texts that hold its padding token.
  std::optional<int64_t> padding = {};
};

}  // namespace castor::encoder
