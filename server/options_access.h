// The options about who gets in.
#pragma once

#include "server/option_kinds.h"
#include "server/options.h"

namespace castor::server {

void DeclareAccess(Declarer& declare, ServerOptions& options);

// Whether they go together. Call when all have been read. Throws CLI::ValidationError.
void CheckAccess(const ServerOptions& options);

}  // namespace castor::server
