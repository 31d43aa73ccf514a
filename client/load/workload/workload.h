// The workload of a load test: classes of requests with weights, their arrivals, and each class's
// objectives. parse.h reads it from TOML.
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

namespace castor::load {

// ---- lengths: a number of tokens (or of sequences), drawn for each payload

struct FixedLength {
  int64_t length = 128;
};
struct UniformLength {  // both ends included
  int64_t least = 1, greatest = 512;
};
struct LognormalLength {  // clamped to [least, greatest]
  double median = 128, sigma = 1;
  int64_t least = 1, greatest = 4096;
};
using Length = std::variant<FixedLength, UniformLength, LognormalLength>;

// ---- what a class must reach

struct LatencyGoal {
  double quantile = 0.99;            // 0.99 is p99
  std::chrono::nanoseconds limit{};  // from the intended time to the answer
  bool operator==(const LatencyGoal&) const = default;
};

struct Objective {
  std::vector<LatencyGoal> latencies{};
  // The share of requests without an OK answer; cancelled ones do not count.
  std::optional<double> max_error_share{};

  bool empty() const { return latencies.empty() && !max_error_share.has_value(); }
  bool operator==(const Objective&) const = default;
};

// ---- classes

struct AttendSpec {
  Length lengths = FixedLength{128};  // tokens of each sequence
  Length sequences = FixedLength{1};  // sequences of each request
  int64_t heads = 8, head_dim = 64;
  v1::DataType dtype = v1::FLOAT32;
  // Rows around a few centres, like trained keys and queries, instead of Gaussian noise.
  bool structured = false;
  int64_t surrogate_tokens = 16;  // for kernel cast
  std::string kernel{};           // as --kernel takes it
};

struct EncodeSpec {
  std::string model{};               // empty: the server's only one
  std::string text_file{};           // one text a line; empty: texts are generated
  Length lengths = FixedLength{16};  // words of each generated text
  Length sequences = FixedLength{1};
  v1::EncodeOutput output = v1::ENCODE_OUTPUT_DEFAULT;
  std::string kernel{};  // as --kernel takes it
};

using CallSpec = std::variant<AttendSpec, EncodeSpec>;

struct ClassSpec {
  std::string name{};
  double weight = 1;  // its share of the requests is weight / sum of weights
  CallSpec call{};
  v1::Priority priority = v1::PRIORITY_DEFAULT;
  std::chrono::nanoseconds deadline{std::chrono::seconds(60)};  // from the intended time
  std::string tenant{};                     // metadata castor-tenant; empty: none
  std::string token_file{};                 // of the class's token; empty: the run's token, if any
  double cancel_share = 0;                  // this share of its requests (0..1) ...
  std::chrono::nanoseconds cancel_after{};  // ... is cancelled this long after its intended time
  int64_t payloads = 16;                    // distinct requests, sent in turn
  Objective objective{};
};

// ---- arrivals

struct OpenLoop {
  double rate = 10;           // requests per second
  bool constant = false;      // equal gaps instead of Poisson arrivals
  int64_t max_in_flight = 0;  // 0: no cap. Beyond it a request is not sent but dropped
};
struct ClosedLoop {
  int64_t callers = 1;                    // each sends its next request after an answer ...
  std::chrono::nanoseconds think_time{};  // ... and this pause
};
using Load = std::variant<OpenLoop, ClosedLoop>;

inline double InSeconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

struct Workload {
  std::vector<ClassSpec> classes{};
  Load load;
  std::chrono::nanoseconds duration{std::chrono::seconds(60)};
  std::chrono::nanoseconds warm_up{std::chrono::seconds(5)};  // sent before, and not counted
  uint64_t seed = 1;                                          // of the schedule and of all contents
};

}  // namespace castor::load
