// Settings that libraries read from the environment before main runs.
#pragma once

namespace castor::server {

// Sets the variable below unless the environment does, and starts the program again in the same
// process. Returns if there is nothing to set. Call first in main.
//
// GOMP_SPINCOUNT: LibTorch's OpenMP runtime lets its threads spin for milliseconds before they
//   sleep. That takes the cores away from gRPC's threads and from the neighbours on a shared
//   machine. Not set if OMP_WAIT_POLICY is.
void SetEnvironment(char** argv);

}  // namespace castor::server
