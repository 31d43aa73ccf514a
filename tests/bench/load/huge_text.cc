// 100 texts of 1 MiB: more bytes than a tokenizer reads in the time that a small one may wait.

#include <random>

#include "tests/bench/load/huge.h"
#include "tests/bench/load/requests.h"

namespace castor::bench {
namespace {

constexpr int kTexts = 100;
constexpr size_t kTextBytes = 1 << 20;

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
  for (const bool words : {true, false}) {
    huge.bytes = HundredTexts(words ? &WordsOfBytes : &UnbrokenWord);
    const std::string kind = words ? "words" : "unbroken words";
    huge.name = kind + ", deadline of 5 s";
    huge.has_deadline = true;
    huge.time = std::chrono::seconds(5);
    MeasureHuge(settings, flags, huge, report);
    huge.name = kind + ", cancelled after 1 s";
    huge.has_deadline = false;
    huge.time = std::chrono::seconds(1);
    MeasureHuge(settings, flags, huge, report);
  }
}

}  // namespace castor::bench
