// The decoder of EncodeRequest against protobuf's parser; that of RerankRequest, which reads the
// same kinds of fields, does no harm.

#include "server/codec/rerank_codec.h"
#include "tests/fuzz/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor;
  server::twin::CompareInput({data, size}, server::twin::CompareEncode);
  const grpc::Slice slice(data, size);
  server::DecodedRerank rerank;
  (void)server::DecodeRerankRequest(grpc::ByteBuffer(&slice, 1), server::twin::Regions(), {},
                                    &rerank);
  return 0;
}
