// The run's timeline as an HdrHistogram interval log (format 1.3, histograms in the compressed V2
// encoding), which the HdrHistogram tools and libraries of most languages read.
#pragma once

#include <iosfwd>
#include <string>

#include "client/load/measure/histogram.h"
#include "client/load/measure/run_data.h"

namespace castor::load {

// The compressed V2 encoding in base64, "HISTFAAA...". Histograms of equal counts give equal text.
std::string EncodeHistogram(const Histogram& histogram);

// A line for every second and class, tagged with the class's name, of the latency of OK answers
// from the intended time. Values are ns; the interval's greatest, in clear, is in ms. Starts of
// intervals are seconds since the run began. Commas, blanks and control characters of a class's
// name, which the format cannot have in a tag, become '_'. Throws std::runtime_error when
// `run.begun` is no time, or when writing fails.
void WriteHdrLog(const RunData& run, std::ostream& out);

}  // namespace castor::load
