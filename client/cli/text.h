// Numbers and texts as a terminal shows them: in English, with three digits that count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "client/utf8.h"

namespace castor::cli {

std::string TimeText(double nanoseconds);  // "<1 us", "840 us", "12.4 ms", "1.24 s"
std::string ClockText(double seconds);     // "1:18", "1:02:03"
std::string CountText(int64_t count);      // "1,234,567"
std::string RateText(double per_second);   // "0.500", "12.3", "4,980"
std::string ShortText(double value);       // "0", "0.25", "12.3", "4.98k", "1.23M"
std::string ShortCount(double count);      // of whole things: "0", "12", "1,024", "1.05M"

using client::CleanText;

// CleanLine, cut to `cells` columns of a terminal; an ellipsis says that it was. Never wider than
// that: where terminals differ on a character's width, it counts the greater.
std::string FitText(std::string_view text, size_t cells);
size_t CellsOf(std::string_view text);

}  // namespace castor::cli
