// grpc.health.v1.Health. gRPC's own implementation would not do: it says SERVING from its
// construction on, and its open Watch streams hold up the server's shutdown.
//
// Names: "" and each service's full name say whether work is taken; "readiness" the same for
// probes; "model/NAME" for each loaded model; "liveness" is SERVING as long as the process should
// not be killed; when it is not, no other name is. For an unknown name Check is NOT_FOUND and Watch
// says SERVICE_UNKNOWN.
//
// Any thread may call anything. The names are fixed at construction. One lock guards the statuses
// and every stream's state; nothing is called under it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/mutex.h"
#include "grpc/health/v1/health.pb.h"
#include "server/transport/message_service.h"

namespace castor::server {

inline constexpr std::string_view kLiveness = "liveness";
inline constexpr std::string_view kReadiness = "readiness";

class HealthService final : public MessageService {
 public:
  // All of `names` and "liveness" exist from now on; all but "liveness" are NOT_SERVING. `calls`
  // and `authorizer` must outlive the service.
  HealthService(const std::vector<std::string>& names, CallTable& calls,
                const Authorizer& authorizer);

  // Sets every name but "liveness". While that is not SERVING, no name is.
  void SetServing(bool serving);

  // "liveness", and with it the others. True at construction.
  void SetAlive(bool alive);

  // NOT_SERVING for every name, for good; ends every Watch stream after it has been told.
  void Shutdown();

 private:
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // What one Watch stream does next: writes, or ends, or nothing.
  struct Step {
    std::optional<Status> write;
    std::optional<grpc::Status> finish;
  };
  class Check;
  class Watcher;

  std::optional<Status> StatusOf(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);

  // Marks the step as pending; the caller must Take it once it has released the lock.
  Step NextStep(Watcher& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Records each name's current status.
  void UpdateStatuses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Brings every stream up to date.
  void NotifyWatchers() ABSL_LOCKS_EXCLUDED(mu_);

  CallTable& calls_;

  Mutex mu_;
  std::map<std::string, Status, std::less<>> statuses_ ABSL_GUARDED_BY(mu_);
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mu_);  // those that have not been finished
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool alive_ ABSL_GUARDED_BY(mu_) = true;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace castor::server
