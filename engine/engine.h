// Castor's engine: queues attention and encoder requests, batches them without padding, runs them
// on one device and answers through a callback. Usable without a network: link castor_engine, and
//
//   absl::StatusOr<std::unique_ptr<Engine>> engine = CreateEngine(EngineOptions{});
//   (*engine)->Submit(std::move(request), [](absl::StatusOr<AttentionResult> result) { ... });
//
// tests/integration/engine_example.cc is a whole program. engine/DESIGN.md explains the inside.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "engine/base/heartbeat.h"
#include "engine/base/machine.h"
#include "engine/request.h"
#include "engine/stats.h"

namespace castor {

struct ModelSource {
  std::string name;
  std::string directory;          // as Hugging Face lays it out; or NAME.safetensors, CAST layers
  DType dtype = DType::kFloat32;  // of the weights on the device: kFloat32 or kBFloat16
};

struct EngineOptions {
  // "auto" takes CUDA where a driver and a device are there, and fails if they do not work; else
  // the CPU. "cpu". "cuda" or "cuda:N" fail where there is none.
  std::string device = "auto";
  int cpu_threads = 0;  // 0: AvailableProcessors()
  std::vector<ModelSource> models;

  // Budgets over everything admitted and not yet answered. A request that exceeds one of them all
  // by itself is refused as TOO_LARGE, one that finds no room as QUEUE_FULL.
  int64_t max_queued_requests = 1024;
  int64_t max_queued_tokens = 1 << 20;
  // Inputs and outputs in staging memory, and the kernel's workspace as far as it grows with them.
  int64_t max_queued_bytes = MemoryShare(int64_t{2} << 30, 4);

  // Batches: formed when the device is free, of compatible requests up to the budgets. A request
  // above max_batch_tokens runs alone.
  int64_t max_batch_tokens = 16384;
  int32_t max_batch_requests = 256;
  std::chrono::microseconds batch_delay{0};  // how long a free device waits for company

  int64_t max_sequences = 4096;      // in one request
  int64_t max_text_bytes = 1 << 20;  // of one text

  // The automatic kernel's cost model: what `cost_model_file` holds, if that was measured on such a
  // device, with these libraries and this `build`; so engines that share the file choose alike.
  // Else it is measured when the engine starts, in about `cost_model_budget`, if the device has
  // approximate kernels, and makes the file if there is none. A budget of 0 measures nothing;
  // without a model, the automatic kernel is the most exact one allowed.
  std::chrono::milliseconds cost_model_budget{400};
  std::string cost_model_file;  // empty: none
  std::string build;

  // The share of requests for an approximate kernel, 0 to 1, whose error is measured for the
  // statistics though they do not ask; and on how many rows per sequence.
  double fidelity_share = 0;
  int32_t fidelity_sample_rows = 16;

  int completion_threads = 2;
  int tokenizer_threads = 0;  // 0: one per core
  int64_t max_cached_host_bytes = MemoryShare(int64_t{1} << 30, 8);
};

struct DeviceInfo {
  std::string name;          // "cpu", "cuda:0"
  std::string description;   // the processor's own name
  int64_t memory_bytes = 0;  // on the CPU: MemoryLimitBytes()
  int threads = 0;           // on the CPU
  std::string backend;       // versions of the libraries that compute
};

struct KernelInfo {
  KernelName name;
  std::vector<DType> dtypes;
  std::string backend;
};

// Where the automatic kernel's cost model came from.
struct CostModelInfo {
  enum class Source { kNone, kMeasured, kFile };
  Source source = Source::kNone;
  double seconds = 0;  // that measuring or reading took
  std::string file;    // EngineOptions::cost_model_file
  std::string note;    // why it was not read or not written, if so
  // What it says of one sequence of 4096 tokens, 8 heads of 64, in float32.
  struct Prediction {
    KernelName kernel;
    double us;
  };
  std::vector<Prediction> examples;
};

struct ModelInfo {
  std::string name;
  std::string family;
  DType dtype = DType::kFloat32;
  int64_t hidden_size = 0;
  int32_t layers = 0;
  int32_t heads = 0;
  int64_t max_tokens = 0;
  int64_t vocabulary_size = 0;
  int64_t type_vocabulary_size = 0;
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  std::vector<KernelName> kernels;
  std::vector<EncodeOutput> outputs;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
};

struct EngineInfo {
  DeviceInfo device;
  std::vector<KernelInfo> kernels;
  std::vector<ModelInfo> models;  // in order of name
  CostModelInfo cost_model;
  double warm_up_seconds = 0;  // that the first runs of models and kernels took, at the start
};

// Identifies an admitted request, for Cancel. Never reused.
using Ticket = uint64_t;

using AttentionCompletion = absl::AnyInvocable<void(absl::StatusOr<AttentionResult>) &&>;
using EncodeCompletion = absl::AnyInvocable<void(absl::StatusOr<EncodeResult>) &&>;

// All methods may be called from any thread. Destruction drains.
class Engine {
 public:
  virtual ~Engine() = default;

  // Checks the request, admits it against the budgets, copies its tensors into staging memory (the
  // caller's memory is free again when Submit returns) and queues it. Never blocks on the device.
  //
  // On an error the request was not admitted and `done` is dropped uncalled; nothing was allocated
  // for it before the checks passed. Otherwise `done` is called exactly once, on a completion
  // thread; it must not block or throw, and may destroy what it likes except the engine.
  //
  // Where there is no memory for what a request's size decides, the answer is OUT_OF_MEMORY; where
  // there is none for the engine's own few words about it, the process ends by std::terminate.
  virtual absl::StatusOr<Ticket> Submit(AttentionRequest request, AttentionCompletion done) = 0;
  virtual absl::StatusOr<Ticket> Submit(EncodeRequest request, EncodeCompletion done) = 0;

  // A request that still waits is answered CANCELLED at once; one that runs finishes with its
  // batch, and is answered with its result. Unknown and answered tickets are ignored.
  virtual void Cancel(Ticket ticket) = 0;

  // As it is now. Models can be replaced or removed at any time; the rest stays as it is.
  virtual EngineInfo info() const = 0;
  virtual const EngineOptions& options() const = 0;
  virtual EngineStats stats() const = 0;

  // Whether the engine thread has work at hand, and a count that rises as it gets on with it: with
  // every task of a kernel and half-layer of a model on a CPU, with every batch on a GPU. A count
  // that stands still while there is work means a long task, or one that hangs. Cheap.
  virtual Progress progress() const = 0;

  // False after a fault that the device does not recover from; Submit then answers INTERNAL.
  virtual bool healthy() const = 0;

  // Refuses new requests with DRAINING and waits until all admitted ones are answered, or until
  // `deadline`: then those that still wait are answered DRAINING. Returns whether all finished.
  virtual bool Drain(TimePoint deadline) = 0;
};

// Opens the device, loads the models and runs them and the kernels once, which can take seconds.
// A model that cannot run is an error, with its name.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(EngineOptions options);

}  // namespace castor
