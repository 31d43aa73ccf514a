// castor-server verify MODEL --manifest FILE: whether a model's files are what the manifest says,
// so that an init container can keep a server from starting with others.
#pragma once

namespace castor::server {

// `argv` from "verify" on. The exit code: 0 for a model that is as it should be, 1 for another, 2
// for bad arguments or a manifest that is none. Faults go to standard error, a line each.
int RunVerifyCommand(int argc, const char* const* argv);

}  // namespace castor::server
