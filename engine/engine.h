// Castor's engine: queues attention and encoder requests, batches them without padding, runs them
// on one device and answers through a callback. It needs no network: link castor_engine, and
//
//   absl::StatusOr<std::unique_ptr<Engine>> engine = CreateEngine(EngineOptions{});
//   (*engine)->Submit(std::move(request), [](absl::StatusOr<AttentionResult> result) { ... });
//
// tests/integration/engine_example.cc is a complete program. engine/DESIGN.md explains the
// internals.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/machine.h"
#include "engine/base/run_control.h"
#include "engine/request.h"
#include "engine/stats.h"

namespace castor {

struct ModelSource {
  std::string name;               // two names for one directory share its weights
  std::string directory;          // in Hugging Face layout; or NAME.safetensors with CAST layers
  DType dtype = DType::kFloat32;  // of the weights on the device: kFloat32 or kBFloat16

  // Linear layers multiply in 8 bits; needs a CPU with AVX2, and kFloat32 as the `dtype` of the
  // rest.
  bool int8 = false;

  // Adapters beside the model's own, by task: directories as PEFT saves them.
  std::vector<std::pair<std::string, std::string>> adapters = {};
};

struct ModelInfo;

// Who loads models once the engine runs.
enum class ModelControl {
  kNone,      // no one
  kExplicit,  // LoadModel
  kAuto,      // LoadModel, and the first request for a model
};

// Models that may be loaded while the engine runs, and the bounds on all that are.
struct ModelCatalog {
  ModelControl control = ModelControl::kNone;
  // Each folder of this one is a model, under its own name.
  std::string root;
  DType dtype = DType::kFloat32;  // as ModelSource's
  bool int8 = false;
  // For the weights of all models, those of EngineOptions::models too; set aside from
  // max_device_bytes. Models that fit in are loaded and those used least recently are unloaded. 0:
  // half of max_device_bytes.
  int64_t weights_budget = 0;
  // A model that no request has used for so long is unloaded. 0: never.
  std::chrono::milliseconds idle_unload{0};
};

// A tenant's share of the device, and its quotas.
struct TenantTerms {
  double weight = 1;  // tenants share the device in proportion to their weights: 0.001 to 1000

  // Bounds on what the tenant has admitted and not yet answered, like the engine's budgets: a
  // request over one is refused with QUEUE_FULL, or with TOO_LARGE if it exceeds it alone. 0: no
  // quota.
  int64_t max_queued_requests = 0;
  int64_t max_queued_tokens = 0;
  int64_t max_queued_bytes = 0;

  bool operator==(const TenantTerms&) const = default;
};

struct EngineOptions {
  // "auto", "cpu", "cuda" or "cuda:N". "auto" uses CUDA if there is a driver and a device, and
  // fails if they do not work; otherwise it uses the CPU. "cuda" and "cuda:N" fail if there is no
  // such device.
  std::string device = "auto";
  int cpu_threads = 0;              // to compute, and as many to tokenize; 0: AvailableProcessors()
  std::vector<ModelSource> models;  // loaded at the start, for as long as the engine runs
  ModelCatalog catalog;
  // Called when a model has been loaded, on the thread that loads it; may be empty.
  std::function<void(const ModelInfo&)> on_model_loaded;

  // Budgets over all that is admitted and not yet answered. A request that alone exceeds a budget
  // is refused with TOO_LARGE; one that does not fit now, with QUEUE_FULL.
  int64_t max_queued_requests = 1024;
  int64_t max_queued_tokens = 1 << 20;
  // Staging memory: texts, inputs and outputs.
  int64_t max_queued_bytes = MemoryShare(int64_t{2} << 30, 4);

  // The device's memory, for the models' weights and for what batches need while they run. A model
  // whose weights do not fit next to the others is not loaded; a request that would need more than
  // they leave is refused with TOO_LARGE; batches run concurrently as far as they fit. 0: half of
  // the memory on the CPU, most of it on a GPU.
  int64_t max_device_bytes = 0;

  // A request is admitted if it is predicted to begin within `max_queued_time`, and to take the
  // device for at most `max_request_time`; otherwise it is refused with QUEUE_FULL or TOO_LARGE.
  std::chrono::milliseconds max_queued_time{30'000};
  std::chrono::milliseconds max_request_time{600'000};

  // Tenants not listed have weight 1 and no quota. SetTenants replaces these terms.
  std::map<std::string, TenantTerms> tenants;

  // Limits of a batch, which is formed of compatible requests when the device is free. A request
  // above max_batch_tokens runs alone.
  int64_t max_batch_tokens = 16384;
  int32_t max_batch_requests = 256;
  // How long the first request of a batch waits for the batch to fill up.
  std::chrono::microseconds batch_delay{0};

  int64_t max_sequences = 4096;      // in one request
  int64_t max_text_bytes = 1 << 20;  // of one text

  // The automatic kernel's cost model. It is read from `cost_model_file` if that was measured on
  // the same kind of device, with the same libraries and `build`, so engines that share the file
  // choose alike. Otherwise, if the device has approximate kernels, it is measured at startup
  // within about `cost_model_budget`, and written to the file if there is none. A budget of 0
  // disables measuring. Without a model, the automatic kernel is the most exact kernel allowed.
  std::chrono::milliseconds cost_model_budget{1000};
  std::string cost_model_file;  // empty: none
  std::string build;

  // The share of requests for an approximate kernel, 0 to 1, whose error is measured only for the
  // statistics, if they do not ask for it.
  double fidelity_share = 0;

  int64_t max_cached_host_bytes = MemoryShare(int64_t{1} << 30, 8);

  // Memory for answers that equal requests of the same tenant get again; 0: none. They are answers
  // of encoders with exact attention to texts or ids. Those used least recently go first: of the
  // tenant that has most, or of one that has not asked for an hour.
  int64_t answer_cache = 0;
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
  // The optional parts of AttentionRequest that it supports, for all dtypes.
  bool log_sum_exp = false;  // return_log_sum_exp
  bool positions = false;
  bool softcap = false;
  bool key_bias = false;
};

// The origin of the automatic kernel's cost model.
struct CostModelInfo {
  enum class Source { kNone, kMeasured, kFile };
  Source source = Source::kNone;
  double seconds = 0;  // the time to measure or read it
  std::string file;    // EngineOptions::cost_model_file
  std::string note;  // why it was not read, not measured in full, or not written; empty: no problem
  // Its predictions for one sequence of 4096 tokens, 8 heads of 64, in float32.
  struct Prediction {
    KernelName kernel;
    double us;
  };
  std::vector<Prediction> examples;
};

// The accuracy of a model whose linear layers multiply in 8 bits: the cosine between its pooled
// vectors and those of the same model in float32, on built-in texts, when it was loaded. A model
// that does not pool is compared by its token rows. NaN if a vector is not finite.
struct Int8Fidelity {
  double mean_cosine = 0;
  double least_cosine = 0;
};

// A named text that is put before a request's texts.
struct Prompt {
  // A special token that begins the text, such as PyLate's "[Q] ".
  struct Marker {
    int64_t id = 0;
    size_t bytes = 0;  // of the text
    size_t place = 0;  // among a sequence's tokens, whose special tokens come first
  };
  std::string name;
  std::string text;
  int32_t left_out = 0;        // the number of first tokens that are not pooled because of it
  int64_t max_tokens = 0;      // of a sequence that has it; 0: the model's maximum
  int64_t padded_to = 0;       // tokens of a sequence that has it, at least; 0: it is not padded
  bool hides_padding = false;  // from all tokens: none attends to it
  std::optional<Marker> marker = std::nullopt;
};

struct Prompts {
  std::vector<Prompt> all;   // sorted by name
  std::string default_name;  // empty: none
  bool pooled = true;        // whether a prompt's tokens are pooled with the text's
};

struct ModelInfo {
  std::string name;
  uint64_t generation = 0;  // differs between all that were loaded, also under one name
  std::string alias_of;     // the name under which its weights were loaded; empty: `name`
  std::string directory;    // the source of its weights
  double load_seconds = 0;  // the time to load it
  std::string family;
  DType dtype = DType::kFloat32;
  std::optional<Int8Fidelity> int8;  // set if the linear layers multiply in 8 bits
  int64_t hidden_size = 0;           // width of the last layer's rows, and of embeddings as input
  int64_t pooled_size = 0;           // width of a kPooled row; 0: hidden_size
  int64_t token_size = 0;            // width of a kTokenEmbeddings row; 0: hidden_size
  bool takes_embeddings = true;      // as input in place of ids; false if its table is narrower
  int32_t layers = 0;
  int32_t heads = 0;
  int64_t max_tokens = 0;
  int64_t vocabulary_size = 0;
  int64_t type_vocabulary_size = 0;
  Pooling pooling = Pooling::kMean;
  bool normalize = false;
  int64_t dimensions = 0;               // default number of a kPooled row's dimensions; 0: all
  std::string similarity;               // with which clients should compare rows; empty: not known
  Side truncation_side = Side::kRight;  // default
  // The default kernel of its attention layers. An encoder with CAST layers has Cast, with their
  // parameters and without tensors; all others have exact attention.
  Kernel kernel = Vanilla{};
  std::vector<KernelName> kernels;
  std::vector<EncodeOutput> outputs;  // the first is the default
  std::vector<std::string> labels;    // of a classifier
  bool token_labels = false;          // whether it has logits for each token, not for each sequence
  bool lexical = false;               // whether its kSparse weighs the ids of the input's tokens
  Prompts prompts;
  std::vector<std::string> tasks;  // of its adapters, or its routes
  bool needs_task = false;         // each request must name one
  std::string lookup_task;         // the route whose texts are looked up in a table; empty: none
  bool lookup_by_default = false;  // so are texts of no route
  // A reranker may put each pair into a text of its own. Whether that text has a place for an
  // instruction, which is then the request's prompt.
  bool takes_instruction = false;
  int64_t template_tokens = 0;  // of the text without the pair; 0: there is none
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
};

using ModelInfos = std::vector<ModelInfo>;

enum class ModelState {
  kUnloaded,   // of the catalog
  kWaiting,    // to be loaded, after others
  kLoading,    // requests wait, or find its predecessor
  kReady,      // requests find it
  kUnloading,  // its requests are being answered, then its memory is freed
  kFailed,     // to load
};

// A model that is loaded or may be.
struct ModelStatus {
  std::string name;
  std::string directory;
  ModelState state = ModelState::kUnloaded;
  bool pinned = false;       // loaded at the start, and never unloaded
  int64_t weight_bytes = 0;  // that it takes of the weights' budget now
  int64_t users = 0;         // requests
  TimePoint last_used{};     // when the last one ended, or when it was loaded
  uint64_t loads = 0;        // since the start
  double load_seconds = 0;   // the time of the last one
  std::string failure;       // if kFailed
};

struct ModelCatalogStats {
  int64_t weights_budget = 0;
  int64_t weight_bytes = 0;  // of all models, also of those on their way in or out
  uint64_t evictions = 0;    // models unloaded for another, or because none used them
};

struct EngineInfo {
  DeviceInfo device;
  int64_t max_device_bytes = 0;  // as set in the options, or as found if that is 0
  std::vector<KernelInfo> kernels;
  CostModelInfo cost_model;
  double warm_up_seconds = 0;  // the time of the first runs of models and kernels, at startup
};

// Identifies an admitted request, for Cancel. Never reused.
using Ticket = uint64_t;

using AttentionCompletion = absl::AnyInvocable<void(absl::StatusOr<AttentionResult>) &&>;
using EncodeCompletion = absl::AnyInvocable<void(absl::StatusOr<EncodeResult>) &&>;
using ModelCompletion = absl::AnyInvocable<void(const absl::Status&) &&>;

// All methods may be called from any thread. The destructor drains.
class Engine {
 public:
  virtual ~Engine() = default;

  // Checks the request, admits it against the budgets, copies its tensors into staging memory (the
  // caller's memory is free again when Submit returns) and queues it. Never blocks on the device,
  // but may run a request of some 100 µs where its call allows that (may_run_in_submit).
  //
  // A request is refused with DEADLINE_EXCEEDED if it is not expected to meet its deadline.
  //
  // On an error the request is not admitted and `done` is dropped without a call; nothing is
  // allocated for a request before its checks pass. Otherwise `done` is called exactly once, on a
  // completion thread or, if the request ran in Submit, before Submit returns; it must not block or
  // throw, and may destroy anything except the engine.
  //
  // If an allocation whose size depends on the request fails, the answer is OUT_OF_MEMORY. If one
  // of the engine's own small allocations fails, the process ends through std::terminate.
  virtual absl::StatusOr<Ticket> Submit(AttentionRequest request, AttentionCompletion done) = 0;
  virtual absl::StatusOr<Ticket> Submit(EncodeRequest request, EncodeCompletion done) = 0;

  // For parts of a request that the caller gathers before it can submit the whole: counts `bytes`
  // and one request against the tenant's quotas until the result is destroyed, which must be before
  // Submit. All gathered bytes together may be a sixteenth of max_queued_bytes, and a tenant's
  // three quarters of that. Errors as for Submit.
  virtual absl::StatusOr<std::shared_ptr<void>> Reserve(const std::string& tenant,
                                                        int64_t bytes) = 0;

  // A waiting request is answered with CANCELLED at once. A running one normally finishes with its
  // batch and gets its result. It is answered with CANCELLED if it would have to run again, or if
  // every request of its batch was cancelled or has expired. Unknown and answered tickets are
  // ignored.
  virtual void Cancel(Ticket ticket) = 0;

  // Replaces the terms of all tenants; tenants not listed have weight 1 and no quota. Admitted
  // requests stay admitted, and wait by the new weights. A tenant over its new quota gets
  // QUEUE_FULL until it is below it. Values out of range become the nearest valid ones, so check
  // them before (option_bounds.h).
  virtual void SetTenants(std::map<std::string, TenantTerms> tenants) = 0;

  // The loaded models, sorted by name. The list never changes; a load or an unload replaces it.
  virtual std::shared_ptr<const ModelInfos> models() const = 0;

  // All models that are loaded or may be, sorted by name. Reads the catalog's folder.
  virtual std::vector<ModelStatus> model_statuses() const = 0;
  virtual ModelCatalogStats catalog_stats() const = 0;

  // Loads the catalog's folder `folder`, or with an empty one the folder `name`, as the model
  // `name`, and answers when requests find it. Models that are used least recently are unloaded if
  // it needs their room. If the name is loaded from that folder, `replace` loads it again beside
  // itself; without, all is done. From another folder `replace` is needed. Answers:
  // MODEL_CONTROL_OFF, also for pinned models; MODEL_NOT_FOUND; INVALID_FIELD; TOO_LARGE, with the
  // bytes that are missing; MODEL_FAILED, with the file and the fault.
  //
  // `done` is called exactly once, on this thread or another; it must not block or throw.
  virtual void LoadModel(const std::string& name, const std::string& folder, bool replace,
                         ModelCompletion done) = 0;

  // Requests do not find the model from now on. Answers when those that use it are answered, and
  // its memory is freed; at once if it is not loaded. Errors as for LoadModel.
  virtual void UnloadModel(const std::string& name, ModelCompletion done) = 0;

  // The error for a request whose model is not loaded: MODEL_LOADING if AwaitModel may help, with
  // the time until it is expected as a hint; MODEL_FAILED with the same while the last attempt is
  // too recent for another; else MODEL_NOT_FOUND.
  virtual absl::Status NotLoaded(const std::string& name) const = 0;

  // Has the model loaded if it may be, and calls `then` once it is, or with the error; on another
  // thread. MODEL_LOADING, without a call, if that is not expected before `deadline`.
  virtual absl::Status AwaitModel(const std::string& name, TimePoint deadline,
                                  ModelCompletion then) = 0;

  // Never changes.
  virtual EngineInfo info() const = 0;
  virtual const EngineOptions& options() const = 0;
  virtual EngineStats stats() const = 0;

  // Whether the engine thread has work, and a count that rises as it makes progress: with every
  // task of a kernel and half-layer of a model on a CPU, with every batch on a GPU. If the count
  // does not rise while there is work, a task is long or hangs. Cheap.
  virtual Progress progress() const = 0;

  // False after a fault that the device does not recover from; Submit then answers INTERNAL.
  virtual bool healthy() const = 0;

  // Refuses new requests with DRAINING and waits until all admitted ones are answered, or until
  // `deadline`. Requests that are still waiting then are answered with DRAINING. Returns whether
  // all finished in time.
  virtual bool Drain(TimePoint deadline) = 0;
};

// Opens the device, loads the models, and runs models and kernels once. Can take seconds. If a
// model cannot run, the error names it.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(EngineOptions options);

}  // namespace castor
