// Settings that libraries read from the environment before main runs.
#pragma once

namespace castor::server {

// Sets those of the variables below that the environment does not set, and starts the program again
// in the same process. Returns if there is nothing to set. Call first in main.
//
// GOMP_SPINCOUNT: LibTorch's OpenMP runtime lets its threads spin for milliseconds before they
//   sleep. That takes the cores away from gRPC's threads and from the neighbours on a shared
//   machine. Not set if OMP_WAIT_POLICY is.
// GLIBC_TUNABLES (glibc.malloc.hugetlb): messages of many MiB live in the heap; asking for
//   huge pages avoids most page faults when they are copied.
void SetEnvironment(char** argv);

}  // namespace castor::server
