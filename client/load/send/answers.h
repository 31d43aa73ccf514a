// What a load test reads of an answer, the serialised message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/load/send/requests.h"
#include "client/load/workload/workload.h"

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
  // Takes `answer` as the reference of a payload. Attention is also computed here, exactly and in
  // double precision, for the answer's error. Call it for the payloads of a class in order.
  void Add(const ClassSpec& spec, size_t cls, uint64_t seed, const Payload& payload,
           std::string_view answer);

  // Attention must have the same bytes, embeddings must be close. Any thread.
  Match Compare(size_t cls, size_t index, bool encode, const std::string& elements) const;

  // ||answer - exact|| / ||exact|| of the reference itself; below 0: not known.
  double ExactError(size_t cls, size_t index) const { return references_[cls][index].exact_error; }

 private:
  struct Reference {
    uint64_t size = 0, fingerprint = 0;  // of the elements
    std::string elements{};              // kept only where answers may differ a little
    double exact_error = -1;
  };

  std::vector<std::vector<Reference>> references_;  // by class and payload
};

}  // namespace castor::load
