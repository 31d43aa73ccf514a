// Builds the requests of a class: equal seeds give equal requests. Reads answers, which are
// serialised messages, and compares them.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "client/cli/command.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// A request as it goes over the wire, built before the run and sent again and again: sending it
// costs no serialising.
inline constexpr char kAttendMethod[] = "/castor.v1.AttentionService/Attend";
inline constexpr char kEncodeMethod[] = "/castor.v1.EncoderService/Encode";

struct Payload {
  bool encode = false;  // or attend
  grpc::Slice message{};
  int64_t tokens = 0;  // in the request; 0: only the answer knows

  const char* method() const { return encode ? kEncodeMethod : kAttendMethod; }
};

// An error of the server, or of the connection to it.
class ServerError : public cli::Failure {
 public:
  explicit ServerError(const std::string& message) : Failure(message, cli::kServerError) {}
};

// One request of a class of attention. Throws cli::UsageError, before anything is allocated, when
// it would exceed a message.
v1::AttendRequest MakeAttend(const ClassSpec& spec, uint64_t seed);

// All payloads of all classes. Throws cli::UsageError when a file cannot be read, when a request
// would exceed a message, and when the payloads take more than 4 GiB of memory.
std::vector<std::vector<Payload>> MakePayloads(const std::vector<ClassSpec>& classes,
                                               uint64_t seed);

// ---- Answers.

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
