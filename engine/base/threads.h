// Whether the system lets this process have the threads that it is about to start.
#pragma once

#include "absl/status/status.h"

namespace castor {

// INTERNAL, with the cause, unless `count` more threads can run at the same time now. It starts
// them and lets them end. For libraries that hang or exit if they cannot start a thread.
absl::Status CheckThreads(int count);

}  // namespace castor
