// The server's metrics for Prometheus: calls, counted here, and samples of the engine, the process
// and the build, taken at each scrape.
//
// All methods but the constructor and the destructor may be called from any thread.
// Counting allocates nothing and takes no lock, except one histogram's in Finished. Every series
// exists, at zero, from construction, or from the first request for a model that was loaded later;
// label values come from closed sets, which have at most kMaxModels models. Series of attention
// calls are labelled by kernel, series of encoder calls by model.
#pragma once

#include <grpcpp/support/status_code_enum.h>
#include <prometheus/registry.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "server/metrics/metrics_access.h"

namespace castor::server {

// The methods, as the label `method` names them: one each for those that compute, and one for all
// that only tell or register something. A call over HTTP counts as the method that does the same.
enum class Method {
  kAttend,
  kAttendStream,  // each message like a call
  kEncode,
  kEncodeStream,
  kRerank,
  kTokenize,
  kDetokenize,
  kModelInfer,  // of the Open Inference Protocol
  kTei,         // of tei.v1, all that compute; each message of a stream like a call
  kOther,
};
inline constexpr int kMethods = 10;

// The kernel or model of a call, as far as it is known.
struct Subject {
  std::optional<KernelName> kernel{};          // that ran, or that the request names
  std::optional<size_t> model = std::nullopt;  // of Metrics::ModelOf
};

// Why a connection was turned away.
enum class RefusedConnection {
  kTooMany,
  kTooManyOfHost,
  kNoDescriptor,
  kTooManyNew,  // that have not made a call yet; the oldest one goes
  kSilent,      // no call in time
  kNoCall,      // it sent something, but ended without a call: no TLS, or no version in common
};
inline constexpr int kRefusedConnections = 6;

class Metrics {
 public:
  // `engine` must outlive this object.
  explicit Metrics(const Engine& engine);
  ~Metrics();

  // The loaded encoder that a request names, or means by "" if it is the only one; nullopt: it is
  // not loaded.
  std::optional<size_t> ModelOf(std::string_view name) const;
  std::string_view NameOf(size_t model) const { return models_[model]; }
  static constexpr size_t kMaxModels = 256;

  // One of each for every call: it began, its answer is known, its last byte has left.
  void Started(Method method);
  void Finished(Method method, const Subject& subject, grpc::StatusCode code, double seconds);
  void Ended(Method method);
  // A call was Finished with OK, but its answer was not delivered completely.
  void AnswerLost(Method method);
  // The server ended a call whose message did not arrive, or whose answer was not taken, in time.
  void CallOverdue();

  // On all listeners together.
  void ConnectionOpened();
  void ConnectionClosed();
  void ConnectionRefused(RefusedConnection cause);
  void ConnectionExpelled();  // for what its peer did

  // Sizes of the messages, protobuf bytes. Counted for the methods that compute.
  void ReceivedBytes(Method method, size_t bytes);
  void SentBytes(Method method, size_t bytes);

  // Adds `change` to the bytes of answers that gRPC holds until they are sent.
  void OutgoingBytes(int64_t change);

  // Shared-memory regions that are registered, and bytes of tensors in them.
  void RegionAdded();
  void RegionRemoved();
  void SharedMemoryRead(uint64_t bytes);
  void SharedMemoryWritten(uint64_t bytes);

  AccessMetrics& access() { return access_; }
  TraceMetrics& traces() { return traces_; }

  // castor_ready is 1 while the server takes requests and the engine does not hang.
  void SetReady(bool ready);
  void SetStalled(bool stalled);
  void SetDraining(bool draining);

  // The page as a scrape reads it: Prometheus's text format 0.0.4.
  std::string Page() const;

 private:
  struct Children;

  // The row of a model, which is new for one that was loaded later; nullopt: there are too many.
  std::optional<size_t> RowOf(const std::string& name) const;

  const Engine& engine_;
  // Models that encode, without aliases: the first `listed_` are constant.
  mutable std::vector<std::string> models_{kMaxModels};
  mutable std::atomic<size_t> listed_ = 0;
  mutable Mutex listing_mu_;  // held to add one
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::shared_ptr<prometheus::Collectable> engine_page_;  // samples Engine::stats()
  const std::shared_ptr<prometheus::Collectable> process_;      // samples /proc/self
  const std::unique_ptr<Children> children_;                    // of the registry's families
  AccessMetrics access_;
  TraceMetrics traces_;

  Mutex mu_;
  bool ready_ ABSL_GUARDED_BY(mu_) = false;
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace castor::server
