// Reads of an answer what a load test wants to know, and steps over the tensor: at thousands of
// answers a second, parsing all of them would be the client's largest cost.
#pragma once

#include <string_view>

#include "client/load/target/protocol.h"

namespace castor::load {

// Of a v1::AttendResponse.
AnswerFacts ReadAttendAnswer(std::string_view answer);
// Of a v1::EncodeResponse.
AnswerFacts ReadEncodeAnswer(std::string_view answer);

}  // namespace castor::load
