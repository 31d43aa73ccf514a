#include "server/version.h"

#include "server/git_commit.h"  // written by the build

namespace castor::server {

std::string_view Version() { return CASTOR_VERSION; }

std::string_view GitCommit() { return CASTOR_GIT_COMMIT; }

}  // namespace castor::server
