// Problems of many kinds whose answers are known, each computed with nothing else on the server.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <array>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "tests/bench/load/caller.h"

namespace castor::bench {

struct KnownProblem {
  const char* method = "";
  std::array<grpc::ByteBuffer, 3> requests{};  // with each priority
  std::string elements{};                      // of the answer's tensor
};

// These end the program if the server cannot answer.
KnownProblem Solve(Caller& caller, v1::AttendRequest message);
KnownProblem Solve(Caller& caller, v1::EncodeRequest message);

// Small ones: attention by every kernel, and texts.
std::vector<KnownProblem> KnownProblems(Caller& caller, uint64_t seed);

enum class Match { kSameBytes, kClose, kWrong };

// Attention must give the same bytes in whatever company it was computed. Embeddings may differ as
// much as those of two implementations do.
Match Compare(const KnownProblem& problem, const grpc::ByteBuffer& answer);

}  // namespace castor::bench
