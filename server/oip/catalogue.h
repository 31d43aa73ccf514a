// The models that the Open Inference Protocol shows: every encoder, and `castor_attention`, which
// is attention itself. Their tensors and their statistics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "inference/grpc_service.pb.h"

namespace castor::server::oip {

inline constexpr std::string_view kAttentionModel = "castor_attention";
inline constexpr std::string_view kVersion = "1";

struct TensorRow {
  std::string_view name;
  std::string_view datatype;
  std::vector<int64_t> shape;  // -1: any size
  bool optional = false;
};

// What was counted of one model since the start. Any thread; a counter is an atomic addition.
class ModelCounters {
 public:
  // `inferences`: sequences. `total_us`: from the request's bytes to its answer.
  void Answered(const ExecutionReport& report, int64_t inferences, double total_us);
  void Failed(double total_us);
  void Fill(inference::ModelStatistics* out) const;

 private:
  enum Sum { kTotal, kQueue, kInput, kInfer, kOutput, kFail, kSums };
  // An execution is counted in parts, one for each request of its batch.
  static constexpr uint64_t kParts = uint64_t{1} << 24;

  std::array<std::atomic<uint64_t>, kSums> ns_{};
  std::atomic<uint64_t> answered_ = 0;
  std::atomic<uint64_t> failed_ = 0;
  std::atomic<uint64_t> inferences_ = 0;
  std::atomic<uint64_t> execution_parts_ = 0;
  std::atomic<uint64_t> last_ms_ = 0;
};

struct Model {
  std::string name;
  std::string alias;  // lower case, with `_` for everything but letters and digits
  bool attention = false;
  bool reranker = false;  // one score for a pair of texts
  ModelInfo info;         // of an encoder
  std::vector<TensorRow> inputs;
  std::vector<TensorRow> outputs;
  mutable ModelCounters counters;

  void Fill(inference::ModelMetadataResponse* out) const;
  void Fill(inference::ModelConfig* out) const;
};

// Constant but for the counters.
class Catalogue {
 public:
  explicit Catalogue(const Engine& engine);

  // By name or alias; `version` is empty or "1". NOT_FOUND; INVALID_FIELD at "model_version".
  absl::StatusOr<const Model*> Find(std::string_view name, std::string_view version) const;

  const std::vector<std::unique_ptr<Model>>& models() const { return models_; }

 private:
  std::vector<std::unique_ptr<Model>> models_;
};

}  // namespace castor::server::oip
