// Reads answers, which are serialised messages, and compares them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/load/send/requests.h"

namespace castor::load {

// The contents of an OK answer. What the server left out is zero or empty.
struct AnswerFacts {
  bool readable = false;  // the message parsed
  bool timed = false;     // it has the times below
  double queue_us = 0, compute_us = 0, total_us = 0;
  std::string kernel{};    // that ran
  int64_t tokens = 0;      // computed; 0: unknown
  std::string elements{};  // of the output, which verification compares
};

// Reads a serialized v1::EncodeResponse if `encode`, else a v1::AttendResponse.
AnswerFacts ReadAnswer(bool encode, std::string_view answer);

// The result of comparing an answer with its reference.
enum class Match { kNotAsked, kEqual, kDifferent };

// The answers to requests sent alone, which answers under load are compared with. Filled before the
// run, constant during it.
class References {
 public:
  // Adds the reference answer to a payload. Call it for the payloads of a class in order.
  void Add(size_t cls, const Payload& payload, std::string_view answer);

  // Attention must have the same bytes, embeddings must be close. Thread-safe.
  Match Compare(size_t cls, size_t index, bool encode, const std::string& elements) const;

 private:
  struct Reference {
    uint64_t size = 0, fingerprint = 0;  // of the elements
    std::string elements{};              // kept only for embeddings
  };

  std::vector<std::vector<Reference>> references_;  // by class and payload
};

}  // namespace castor::load
