// The options about who gets in.
#pragma once

#include <string>

#include "server/options/option_kinds.h"
#include "server/options/options.h"

namespace castor::server {

void DeclareAccess(Declarer& declare, ServerOptions& options);

// Whether they go together. Call when all have been read. Throws CLI::ValidationError.
void CheckAccess(const ServerOptions& options);

// Whether only this machine reaches the address.
bool IsLocal(const std::string& address);

}  // namespace castor::server
