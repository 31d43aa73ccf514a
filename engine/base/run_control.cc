#include "engine/base/run_control.h"

namespace castor {

RunControl& RunToEnd() {
  class ToEnd final : public RunControl {
   public:
    ToEnd() : RunControl(kNever) {}

   private:
    absl::Status AtCheckpoint() override { return absl::OkStatus(); }
  };
  static ToEnd control;
  return control;
}

}  // namespace castor
