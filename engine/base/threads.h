// Whether the system lets this process have the threads that it is about to start.
#pragma once

#include "absl/status/status.h"

namespace castor {

// INTERNAL, with the cause, unless `count` more threads can run at once now: they are started, and
// end again. For libraries that hang or exit where a thread of theirs cannot be started.
absl::Status CheckThreads(int count);

}  // namespace castor
