// How long idle compute threads burn their cores.
#pragma once

namespace castor::server {

// LibTorch's OpenMP runtime lets its threads spin for milliseconds before they sleep, which takes
// the cores away from gRPC's threads and from the neighbours on a shared machine; and it reads how
// long from the environment, when it is loaded, before main. So this sets GOMP_SPINCOUNT and starts
// the program again, in the same process, unless the environment already says GOMP_SPINCOUNT or
// OMP_WAIT_POLICY. Call first in main.
void SpinBriefly(char** argv);

}  // namespace castor::server
