// The last line of a castor-server that cannot go on: after an exception that nobody may catch,
// such as a lack of memory for the engine's bookkeeping (engine/DESIGN.md, "When things fail").
#pragma once

namespace castor::server {

// Makes std::terminate write one line to standard error, without allocating, and abort, so that
// whoever runs the process sees the failure. Called first thing in main.
void SayWhyOnTerminate();

}  // namespace castor::server
