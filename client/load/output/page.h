// The frame of an HTML page that holds all it needs: no network, no files, no fonts from elsewhere.
#pragma once

#include <string>

namespace castor::load {

// `body` is markup; `data` is JSON for report.js, or empty. The page's content security policy
// allows the built-in style and script alone, by their hashes: should a name from the data ever get
// past the escaping, a browser would still not run it.
std::string Page(const std::string& title, const std::string& body, const std::string& data);

}  // namespace castor::load
