// 100 texts of 1 MiB: more bytes than a tokenizer reads in the time that a small one may wait. It
// stops words between two of them. Letters without a space, which have no place to stop, it reads
// at their ends only, whatever their script.

#include <array>
#include <random>

#include "tests/bench/load/huge.h"
#include "tests/bench/load/requests.h"

namespace castor::bench {
namespace {

constexpr int kTexts = 100;
constexpr size_t kTextBytes = 1 << 20;

struct TextCase {
  const char* name;
  std::string (*text)(size_t, std::mt19937_64&);
  bool has_deadline;
  std::chrono::seconds time;
};
constexpr std::array<TextCase, 5> kCases = {
    {{"words, deadline of 5 s", WordsOfBytes, true, std::chrono::seconds(5)},
     {"words, cancelled after 1 s", WordsOfBytes, false, std::chrono::seconds(1)},
     {"Thai without spaces, deadline of 5 s", ThaiLetters, true, std::chrono::seconds(5)},
     {"Thai without spaces, cancelled after 1 s", ThaiLetters, false, std::chrono::seconds(1)},
     {"Latin without spaces, cancelled after 1 s", LatinLetters, false, std::chrono::seconds(1)}}};

grpc::ByteBuffer HundredTexts(std::string (*text)(size_t, std::mt19937_64&)) {
  std::mt19937_64 random(1);
  v1::EncodeRequest request;
  for (int i = 0; i < kTexts; ++i) {
    request.mutable_texts()->add_texts(text(kTextBytes, random));
  }
  return BytesOf(request);
}

}  // namespace

void HugeText(const Settings& settings, Report& report) {
  const std::vector<std::string> flags = {"--model", "encoder=" + settings.model,
                                          "--max-message-bytes", "256MiB"};
  HugeRequest huge;
  huge.method = huge.small_method = kEncode;
  huge.small = BytesOf(EncodeMessage({"two words"}));
  for (const TextCase& text : kCases) {
    huge.name = text.name;
    huge.bytes = HundredTexts(text.text);
    huge.has_deadline = text.has_deadline;
    huge.time = text.time;
    MeasureHuge(settings, flags, huge, report);
  }
}

}  // namespace castor::bench
