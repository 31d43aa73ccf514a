// The report's style sheet and script, built into the program.
#pragma once

#include <string_view>

namespace castor::load {

// The text as it stands between the tags, a newline in front, and its SHA-256 in hexadecimal.
extern const std::string_view kReportCss, kReportCssSha256;
extern const std::string_view kReportJs, kReportJsSha256;

}  // namespace castor::load
