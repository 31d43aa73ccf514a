// What a load test reads of an answer, the serialised message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/load/send/requests.h"

namespace castor::load {

// What an OK answer says of itself. What a server does not say is zero or empty.
struct AnswerFacts {
  bool readable = false;  // it is a message of the expected type
  bool timed = false;     // the times below are there
  double queue_us = 0, compute_us = 0, total_us = 0;
  std::string kernel{};    // that ran
  int64_t tokens = 0;      // computed; 0: not said
  std::string elements{};  // of the output, which verification compares
};

// Reads a serialized v1::EncodeResponse if `encode`, else a v1::AttendResponse.
AnswerFacts ReadAnswer(bool encode, std::string_view answer);

// How an answer compares with the reference.
enum class Match { kNotAsked, kEqual, kDifferent };

// The answer to each request sent alone, against which its answers under load are compared. Filled
// before the run, constant during it.
class References {
 public:
  // Adds the reference answer to a payload. Call it for the payloads of a class in order.
  void Add(size_t cls, const Payload& payload, std::string_view answer);

  // Attention must have the same bytes, embeddings must be close. Any thread.
  Match Compare(size_t cls, size_t index, bool encode, const std::string& elements) const;

 private:
  struct Reference {
    uint64_t size = 0, fingerprint = 0;  // of the elements
    std::string elements{};              // kept only where answers may differ a little
  };

  std::vector<std::vector<Reference>> references_;  // by class and payload
};

}  // namespace castor::load
