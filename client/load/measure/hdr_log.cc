#include "client/load/measure/hdr_log.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <ctime>
#include <ostream>
#include <stdexcept>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"

namespace castor::load {
namespace {

// The low byte 0x1_ says "V2", as the format's writers do.
constexpr uint32_t kEncodingCookie = 0x1c849313;
constexpr uint32_t kCompressionCookie = 0x1c849314;

void AppendBigEndian(uint64_t value, int bytes, std::string& to) {
  for (int i = bytes - 1; i >= 0; --i) to += static_cast<char>(value >> (8 * i));
}

// ZigZag and LEB128, but at most nine bytes: the ninth has eight bits.
void AppendNumber(int64_t value, std::string& to) {
  uint64_t left = (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
  for (int i = 0; i < 8 && left >= 0x80; ++i) {
    to += static_cast<char>((left & 0x7f) | 0x80);
    left >>= 7;
  }
  to += static_cast<char>(left);
}

// The counts from the first bucket to the last that is not empty; a negative number stands for that
// many empty buckets.
std::string EncodedCounts(const Histogram& histogram) {
  std::string counts;
  int next = 0;
  for (const Histogram::Bucket& bucket : histogram.Buckets()) {
    const int gap = bucket.index - next;
    if (gap > 0) AppendNumber(gap == 1 ? 0 : -gap, counts);
    AppendNumber(bucket.count, counts);
    next = bucket.index + 1;
  }
  return counts;
}

std::string Compressed(const std::string& plain) {
  uLongf size = compressBound(plain.size());
  std::string compressed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(compressed.data()), &size,
                reinterpret_cast<const Bytef*>(plain.data()), plain.size(),
                Z_DEFAULT_COMPRESSION) != Z_OK) {
    throw std::runtime_error("zlib cannot compress a histogram: is there memory left?");
  }
  compressed.resize(size);
  return compressed;
}

std::string TagOf(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return c == ',' || c == '\x7f' || static_cast<unsigned char>(c) <= ' '; }, '_');
  return name;
}

absl::Time ParseBegun(const std::string& begun) {
  absl::Time time;
  std::string problem;
  if (!absl::ParseTime(absl::RFC3339_full, begun, &time, &problem)) {
    throw std::runtime_error("the run's begin '" + begun + "' is no ISO 8601 time: " + problem);
  }
  return time;
}

std::string Thousandths(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

}  // namespace

std::string EncodeHistogram(const Histogram& histogram) {
  const std::string counts = EncodedCounts(histogram);
  std::string payload;
  AppendBigEndian(kEncodingCookie, 4, payload);
  AppendBigEndian(counts.size(), 4, payload);
  AppendBigEndian(0, 4, payload);  // the counts are not shifted
  AppendBigEndian(3, 4, payload);  // significant digits
  AppendBigEndian(1000, 8, payload);
  AppendBigEndian(buckets::kHighestValue, 8, payload);
  AppendBigEndian(std::bit_cast<uint64_t>(1.0), 8, payload);  // integers to doubles
  const std::string compressed = Compressed(payload + counts);

  std::string encoded;
  AppendBigEndian(kCompressionCookie, 4, encoded);
  AppendBigEndian(compressed.size(), 4, encoded);
  return absl::Base64Escape(encoded + compressed);
}

void WriteHdrLog(const RunData& run, std::ostream& out) {
  const absl::Time begun = ParseBegun(run.begun);
  const std::string seconds = Thousandths(absl::ToDoubleSeconds(begun - absl::UnixEpoch()));
  out << "#[Histogram log format version 1.3]\n"
      << "#[Latency from the intended time, of OK answers, in ns; written by castor-load]\n"
      << "#[StartTime: " << seconds << " (seconds since epoch), "
      << absl::FormatTime(absl::RFC3339_sec, begun, absl::UTCTimeZone()) << "]\n"
      << "#[BaseTime: " << seconds << " (seconds since epoch)]\n"
      << "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\","
         "\"Interval_Compressed_Histogram\"\n";
  for (size_t second = 0; second < run.seconds.size(); ++second) {
    // The run may end within its last second.
    const auto start = static_cast<double>(second);
    const double left = run.MeasuredSeconds() - start;
    const double length = left > 0 && left < 1 ? left : 1;
    for (size_t cls = 0; cls < run.classes.size(); ++cls) {
      const Histogram& latency = run.seconds[second][cls].intended;
      out << "Tag=" << TagOf(run.classes[cls]) << ',' << Thousandths(start) << ','
          << Thousandths(length) << ',' << Thousandths(static_cast<double>(latency.max()) / 1e6)
          << ',' << EncodeHistogram(latency) << '\n';
    }
  }
  if (!out.flush()) throw std::runtime_error("the HdrHistogram log could not be written");
}

}  // namespace castor::load
