// The models of the Open Inference Protocol: every encoder, and `castor_attention` for attention
// itself; with their tensors and statistics. The Server owns the catalogue, and requests point
// to its models.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
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

// Statistics of one model since the start. Any thread.
class ModelCounters {
 public:
  // `inferences`: sequences. `total_us`: from the request's bytes to its answer.
  void Answered(const ExecutionReport& report, int64_t inferences, double total_us)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Failed(double total_us) ABSL_LOCKS_EXCLUDED(mu_);
  void Fill(inference::ModelStatistics* out) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // In microseconds.
  struct Times {
    double input = 0;
    double infer = 0;
    double output = 0;
  };
  // Executions of batches of one size. Each request adds its part of an execution, 1/size.
  struct Batches {
    double executions = 0;
    Times times;
  };

  mutable Mutex mu_;
  uint64_t answered_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t failed_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t inferences_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_ms_ ABSL_GUARDED_BY(mu_) = 0;
  double total_us_ ABSL_GUARDED_BY(mu_) = 0;
  double failed_us_ ABSL_GUARDED_BY(mu_) = 0;
  double queue_us_ ABSL_GUARDED_BY(mu_) = 0;
  Times times_ ABSL_GUARDED_BY(mu_);
  std::map<int32_t, Batches> batches_ ABSL_GUARDED_BY(mu_);  // by their number of requests
};

struct Model {
  std::string name;
  std::string alias;  // lower case, with `_` for everything but letters and digits
  bool attention = false;
  bool reranker = false;  // one score for a pair of texts
  ModelInfo info;         // of an encoder
  std::vector<TensorRow> inputs;
  std::vector<TensorRow> outputs;
  std::map<std::string, std::string> properties;
  std::shared_ptr<ModelCounters> counters = std::make_shared<ModelCounters>();

  void Fill(inference::ModelMetadataResponse* out) const;
  void Fill(inference::ModelConfig* out) const;
};

// A model in RepositoryIndex, with its state in the protocol's words.
inline constexpr std::string_view kReady = "READY";
struct IndexRow {
  std::string name;
  std::string_view state;
  std::string reason = {};  // why it is not ready
};

using ModelPtr = std::shared_ptr<const Model>;
using Models = std::vector<ModelPtr>;

// The models of the engine's current list, described anew when that changes. A model that is loaded
// again continues its statistics. Any thread; the lock is not held over a call of the engine.
class Catalogue {
 public:
  // `engine` must outlive this.
  explicit Catalogue(const Engine& engine);

  // By name, or by an alias that no two models share. MODEL_NOT_FOUND or as Engine::NotLoaded says;
  // also for a `version` that is neither empty nor 1; INVALID_FIELD at "model_version" if it is no
  // whole number.
  absl::StatusOr<ModelPtr> Find(std::string_view name, std::string_view version) const;

  std::shared_ptr<const Models> models() const;

  // Attention and all models that are loaded or may be.
  std::vector<IndexRow> Index() const;

 private:
  const Engine& engine_;
  const ModelPtr attention_;

  mutable Mutex mu_;
  mutable std::shared_ptr<const ModelInfos> described_ ABSL_GUARDED_BY(mu_);
  mutable std::shared_ptr<const Models> models_ ABSL_GUARDED_BY(mu_);
  // By the models' names, of which the engine bounds the number.
  mutable std::map<std::string, std::shared_ptr<ModelCounters>> counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace castor::server::oip
