// The decoder of EncodeRequest against protobuf's parser.

#include "tests/fuzz/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor::server::twin;
  CompareInput({data, size}, CompareEncode);
  return 0;
}
