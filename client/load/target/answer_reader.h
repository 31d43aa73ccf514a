// Reads of an answer what a load test wants to know, and steps over the tensor: at thousands of
// answers a second, parsing all of them would be the client's largest cost.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "client/load/target/protocol.h"

namespace castor::load {

// Of a v1::AttendResponse.
AnswerFacts ReadAttendAnswer(const grpc::ByteBuffer& answer);
// Of a v1::EncodeResponse.
AnswerFacts ReadEncodeAnswer(const grpc::ByteBuffer& answer);

}  // namespace castor::load
