// How one kind of server is spoken to. castor.v1 is one; others fit behind the same seam, so that
// one tool compares servers with the same schedule and the same clock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/client.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// A request as it goes over the wire, built before the run and sent again and again: sending it
// costs no serialising.
struct Payload {
  std::string method{};               // full path, such as "/castor.v1.AttentionService/Attend"
  std::string message{};              // serialised
  int64_t sequences = 0, tokens = 0;  // in the request; tokens 0: the answer alone knows
};

// What an OK answer says of itself. What a server does not say is zero or empty.
struct AnswerFacts {
  bool readable = false;  // it is a message of the expected type
  bool timed = false;     // the times below are there
  double decode_us = 0, queue_us = 0, copy_in_us = 0, compute_us = 0, copy_out_us = 0, total_us = 0;
  double predicted_us = 0, measured_us = 0;
  std::string kernel{};  // that ran
  int64_t tokens = 0;    // computed; 0: not said
};

// An answer is the serialised message. Any thread may call the const functions.
class Protocol {
 public:
  virtual ~Protocol() = default;

  // The distinct requests of a class. Equal seeds give equal bytes. Throws cli::UsageError when
  // they cannot be made, as when a file is missing or they would be too large for a message.
  virtual std::vector<Payload> MakePayloads(const ClassSpec& spec, uint64_t seed) = 0;

  virtual AnswerFacts Read(const Payload& payload, std::string_view answer) const = 0;

  // What verification compares: the answer's elements. nullopt if it is not readable.
  virtual std::optional<std::string> Elements(const Payload& payload,
                                              std::string_view answer) const = 0;

  // Whether two answers to the same request may differ: by how much relative to the norm. 0: they
  // must have the same bytes.
  virtual double Tolerance(const ClassSpec& spec) const = 0;

  // ||answer - exact|| / ||exact|| by a computation of this client's own, in double precision, on
  // as many rows as `max_operations` multiply-adds allow. nullopt where it cannot tell. `payload`
  // is the index in what MakePayloads returned for this class and seed.
  virtual std::optional<double> ExactError(const ClassSpec& spec, uint64_t seed, size_t payload,
                                           std::string_view answer,
                                           int64_t max_operations) const = 0;
};

// castor.v1: Attend and Encode. Shared memory is registered with the servers at `endpoints`, with
// the TLS and the token of `client`, and unregistered at the end.
std::unique_ptr<Protocol> MakeCastorProtocol(const std::vector<std::string>& endpoints,
                                             const client::ClientOptions& client = {});

}  // namespace castor::load
