// The state behind grpc.health.v1.Health: names, their statuses and the Watch streams. Several
// services may serve one state (services/health_service.h). gRPC's own health service does not fit:
// it says SERVING from its construction on, and open Watch streams block the server's shutdown.
//
// Names: "" and each service's full name say whether work is taken; "readiness" the same for
// probes; "model/NAME" for each loaded model; "liveness" is SERVING as long as the process should
// not be killed; when it is not, no other name is. For an unknown name Check is NOT_FOUND and Watch
// says SERVICE_UNKNOWN, until there is such a name.
//
// Any thread may call anything. The names only grow: that of a model which was unloaded is
// NOT_SERVING. One lock guards the statuses
// and every stream's state; nothing is called under it.
#pragma once

#include <grpcpp/support/status.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "grpc/health/v1/health.pb.h"

namespace castor::server {

inline constexpr std::string_view kLiveness = "liveness";
inline constexpr std::string_view kReadiness = "readiness";

class HealthState {
 public:
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // One Watch stream. The state decides its steps under the lock and has them taken after. That is
  // safe because at most one step is ever pending, and the stream lasts until it has taken the last
  // one.
  class Watch {
   public:
    // The stream's next action: to write, to end, or nothing.
    struct Step {
      std::optional<Status> write;
      std::optional<grpc::Status> finish;

      bool any() const { return write.has_value() || finish.has_value(); }
    };

    Watch() = default;
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   protected:
    ~Watch() = default;

    // Any thread; the step is not empty. After a write, Written must be called.
    virtual void Perform(Step step) noexcept = 0;

   private:
    friend class HealthState;

    // Guarded by the state's lock.
    std::string name_;                     // that is watched
    const Status* status_ = nullptr;       // of that name; null: there is none
    std::optional<grpc::Status> refusal_;  // of what was read
    bool begun_ = false;                   // no step is taken before
    bool busy_ = false;                    // a step is pending; stays true after the last one
    bool gone_ = false;
    std::optional<Status> last_written_;
  };

  // All of `names` and "liveness" exist from now on; all but "liveness" are NOT_SERVING.
  explicit HealthState(const std::vector<std::string>& names);

  // Sets every name but "liveness". While that is not SERVING, no name is.
  void SetServing(bool serving);

  // The models that are loaded now.
  void SetModels(const ModelInfos& models);

  // "liveness", and with it the others. True at construction.
  void SetAlive(bool alive);

  // NOT_SERVING for every name from now on. Each Watch stream gets that status, then ends.
  void Shutdown();

  // Nothing for a name that does not exist.
  std::optional<Status> StatusOf(const std::string& name);

  // The status of every name.
  std::map<std::string, Status, std::less<>> Statuses();

  // Events of a Watch stream. First one of these two, once: it watches `name`, or ends with
  // `error`.
  void Begin(Watch& watch, const std::string& name);
  void Refuse(Watch& watch, grpc::Status error);
  // Its last write is done.
  void Written(Watch& watch, bool ok);
  // Its caller has gone, at any time.
  void Gone(Watch& watch);

 private:
  void Set(bool HealthState::*state, bool value) ABSL_LOCKS_EXCLUDED(mu_);

  // Changes the stream under the lock, then performs its next step without it.
  template <typename Change>
  void Advance(Watch& watch, Change change) ABSL_LOCKS_EXCLUDED(mu_);

  // Marks the step as pending; the caller must perform it once it has released the lock.
  Watch::Step NextStep(Watch& watch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Records each name's current status.
  void UpdateStatuses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Brings every stream up to date.
  void NotifyWatches() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  std::map<std::string, Status, std::less<>> statuses_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> unloaded_ ABSL_GUARDED_BY(mu_);  // names of models
  std::set<Watch*> watches_ ABSL_GUARDED_BY(mu_);  // those that have begun and are not finished
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool alive_ ABSL_GUARDED_BY(mu_) = true;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace castor::server
