// What a load test reads of an answer, the serialised message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace castor::load {

// What an OK answer says of itself. What a server does not say is zero or empty.
struct AnswerFacts {
  bool readable = false;  // it is a message of the expected type
  bool timed = false;     // the times below are there
  double decode_us = 0, queue_us = 0, copy_in_us = 0, compute_us = 0, copy_out_us = 0, total_us = 0;
  double predicted_us = 0, measured_us = 0;
  std::string kernel{};  // that ran
  int64_t tokens = 0;    // computed; 0: not said
};

// Of a v1::EncodeResponse or a v1::AttendResponse. Steps over the tensor: at thousands of answers a
// second, parsing all of them would be the client's largest cost.
AnswerFacts ReadAnswer(bool encode, std::string_view answer);

// The answer's elements, which verification compares. nullopt if it is not readable.
std::optional<std::string> ReadElements(bool encode, std::string_view answer);

}  // namespace castor::load
