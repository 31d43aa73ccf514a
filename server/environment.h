// Settings that libraries read from the environment before main runs.
#pragma once

namespace castor::server {

// Sets the variables below that the environment does not set itself and starts the program again,
// in the same process; returns when there is nothing to set. Call first in main.
//
// GOMP_SPINCOUNT: LibTorch's OpenMP runtime lets its threads spin for milliseconds before they
//   sleep, which takes the cores away from gRPC's threads and from the neighbours on a shared
//   machine. Not set either where OMP_WAIT_POLICY is.
// GLIBC_TUNABLES (glibc.malloc.hugetlb): messages of many MiB come and go in the heap; asking for
//   huge pages takes most page faults away from their copies.
void SetEnvironment(char** argv);

}  // namespace castor::server
