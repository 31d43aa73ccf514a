// What a load test sends: classes of requests with weights, when they arrive, and what each class
// must reach. Read from TOML by parse.h, or built from flags.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "castor/v1/encoder.pb.h"
#include "castor/v1/report.pb.h"
#include "castor/v1/tensor.pb.h"
#include "client/cli/kernel_flags.h"

namespace castor::load {

// ---- lengths: a number of tokens (or of sequences), drawn anew for each payload

struct FixedLength {
  int64_t length = 128;
};
struct UniformLength {  // both ends included
  int64_t least = 1, greatest = 512;
};
struct LognormalLength {  // cut to [least, greatest]
  double median = 128, sigma = 1;
  int64_t least = 1, greatest = 4096;
};
struct EmpiricalLength {  // one of these, each as often as it stands here
  std::vector<int64_t> lengths{};
};
struct LengthMixture;  // such as 90 % short and 10 % long
using Length =
    std::variant<FixedLength, UniformLength, LognormalLength, EmpiricalLength, LengthMixture>;

struct LengthMixture {
  struct Part;
  std::vector<Part> parts;
};
struct LengthMixture::Part {
  double weight = 1;
  std::vector<Length> of;  // exactly one; a vector, since Length is not complete here
};

// ---- what a class must reach

struct LatencyGoal {
  double quantile = 0.99;            // 0.99 is p99
  std::chrono::nanoseconds limit{};  // from the intended time to the answer
};

struct Objective {
  std::vector<LatencyGoal> latencies{};
  std::optional<double>
      max_error_share{};  // of requests that got no OK answer, cancelled ones aside

  bool empty() const { return latencies.empty() && !max_error_share.has_value(); }
};

// ---- classes

enum class Inputs {
  kGaussian,    // standard normal values
  kStructured,  // rows around a few centres, as real keys and queries lie: what clustering relies
                // on
};

struct AttendSpec {
  Length lengths = FixedLength{128};  // tokens of each sequence
  Length sequences = FixedLength{1};  // sequences of each request
  std::vector<int64_t>
      exact_lengths{};                 // if not empty: the sequences, instead of the two above ...
  std::vector<int64_t> key_lengths{};  // ... and those of the keys; empty: the same
  int64_t heads = 8, head_dim = 64;
  int64_t value_dim = 0;  // 0: head_dim
  v1::DataType dtype = v1::FLOAT32;
  Inputs inputs = Inputs::kGaussian;
  int64_t surrogate_tokens = 16;  // for kernel cast
  cli::KernelFlags kernel{};
};

struct EncodeSpec {
  std::string model{};                   // empty: the server's only one
  std::string text_file{};               // one text a line; empty: texts are generated
  Length lengths = FixedLength{16};      // tokens of each generated text, special tokens left out
  Length sequences = FixedLength{1};     // texts of each request
  std::vector<int64_t> exact_lengths{};  // if not empty: the texts, instead of the two above
  v1::EncodeOutput output = v1::ENCODE_OUTPUT_DEFAULT;
  cli::KernelFlags kernel{};
};

using Call = std::variant<AttendSpec, EncodeSpec>;

struct ClassSpec {
  std::string name{};
  double weight = 1;  // its share of the requests is weight / sum of weights
  Call call;
  v1::Priority priority = v1::PRIORITY_DEFAULT;
  std::chrono::nanoseconds deadline{std::chrono::seconds(60)};  // from the intended time
  std::string tenant{};                     // metadata castor-tenant; empty: none
  std::string token{};                      // metadata authorization: Bearer; empty: none
  double cancel_share = 0;                  // of its requests, 0..1 ...
  std::chrono::nanoseconds cancel_after{};  // ... are cancelled this long after their intended time
  int64_t payloads = 16;                    // distinct requests, sent in turn
  std::vector<Call> calls{};   // what each payload is drawn from; empty: all from `call`
  bool shared_memory = false;  // inputs lie in a shared-memory region
  Objective objective;
};

// ---- arrivals: a point process at a rate that may change

enum class Process {
  kConstant,  // equal gaps
  kPoisson,   // exponential gaps: callers that know nothing of each other
  kGamma,     // gaps whose coefficient of variation is `burstiness`
};

// The rate over the run, in requests per second.
struct FlatRate {
  double rate = 10;
};
struct RampRate {  // linear
  double from = 1, to = 10;
};
struct StepRate {  // each for an equal part of the run
  std::vector<double> rates{};
};
struct SineRate {
  double mean = 10, amplitude = 5;
  std::chrono::nanoseconds period{std::chrono::seconds(60)};
};
struct BurstRate {  // `burst` for `length` at the begin of every `period`, `base` between
  double base = 1, burst = 100;
  std::chrono::nanoseconds length{std::chrono::seconds(1)}, period{std::chrono::seconds(10)};
};
using Rate = std::variant<FlatRate, RampRate, StepRate, SineRate, BurstRate>;

struct OpenLoop {
  Process process = Process::kPoisson;
  double burstiness = 1;
  Rate rate = FlatRate{};
  int64_t max_in_flight = 0;  // 0: no cap. Over it a request is not sent, and counted as dropped
};
struct ClosedLoop {
  int64_t callers = 1;                    // each sends its next request after an answer ...
  std::chrono::nanoseconds think_time{};  // ... and this pause
};
struct Replay {
  std::string file{};  // JSONL: schedule/trace.h
  double speed = 1;    // 2: twice as fast as it was recorded
  int64_t max_in_flight = 0;
  ClassSpec each{};  // of the classes that the file makes, what it does not say: schedule/replay.h
};

struct Workload {
  std::vector<ClassSpec> classes{};  // of a replay: none until its file has been read
  std::variant<OpenLoop, ClosedLoop, Replay> load;
  // 0, for a replay only: until its end.
  std::chrono::nanoseconds duration{std::chrono::seconds(60)};
  std::chrono::nanoseconds warm_up{std::chrono::seconds(5)};  // sent before, and not counted
  uint64_t seed = 1;                                          // of the schedule and of all contents
};

}  // namespace castor::load
